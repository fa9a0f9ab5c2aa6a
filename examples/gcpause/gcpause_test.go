package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stagetest"
	"github.com/etcdlock/locks/session"
)

func TestMain(m *testing.M) { stagetest.Main(m, program) }

func TestLateWritesLandOnlyWithoutAFence(t *testing.T) {
	if !canStop {
		t.Skip("this system has no SIGSTOP")
	}
	cluster := embedtest.Start(t)
	out := stagetest.Play(t, "-ttl", "3s", "-endpoints", strings.Join(cluster.Endpoints(), ","))
	for _, unfenced := range []string{"etcd +Put", "HTTP +PUT", "SQLite +UPDATE"} {
		require.Regexp(t, `(?m)^`+unfenced+` +landed +landed +150: bob's 20 are lost$`, out)
	}
	for _, fenced := range []string{"etcd +h.Txn", `etcd +If\(h.Guard\(\)\)`} {
		require.Regexp(t, `(?m)^`+fenced+` +landed +refused, ErrLost +120$`, out)
	}
	for _, fenced := range []string{"HTTP +PUT and the token; 409.*", `SQLite +UPDATE .* AND fence <= \$t; no row`} {
		require.Regexp(t, `(?m)^`+fenced+` +landed +refused, ErrStale +120$`, out)
	}
	require.Regexp(t, `(?m)^alice +=+z+ *X$`, out)
	require.Regexp(t, `(?m)^bob +\.+=*W$`, out)
	require.Contains(t, out, "alice    looks once more: etcdlock: lost")

	left, err := cluster.Client(t).Get(t.Context(), "", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, left.Kvs)
}

// An old holder has to be refused as soon as the new one has read, not only when it has written.
func TestAFenceIsUpOnceTheNewHolderHasRead(t *testing.T) {
	client := embedtest.Start(t).Client(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server := newStorage(opening)
	url, stopServing, err := server.serve()
	require.NoError(t, err)
	t.Cleanup(func() { stopServing(); http.DefaultClient.CloseIdleConnections() })
	b := bank{Prefix: "accounts/", URL: url, Database: filepath.Join(t.TempDir(), "accounts.db")}
	require.NoError(t, b.fill(ctx, client, opening))
	places, closePlaces, err := b.open(client)
	require.NoError(t, err)
	defer closePlaces()
	hold := func() *etcdlock.Hold {
		s, err := session.New(ctx, client)
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close(context.Background()) })
		h, err := etcdlock.NewMutex(s, "account").Lock(ctx)
		require.NoError(t, err)
		return h
	}
	old := hold()
	_, err = client.Revoke(ctx, leaseOf(t, client, old)) // as when it has run out
	require.NoError(t, err)
	current := hold()

	for _, p := range places {
		balance, err := p.Read(ctx, current)
		require.NoError(t, err, p.name)
		require.Equal(t, opening, balance, p.name)
		err = p.Write(ctx, old, 1)
		if !p.fenced {
			require.NoError(t, err, p.name)
			continue
		}
		require.Error(t, err, p.name)
		if strings.HasPrefix(p.name, "etcd") {
			require.ErrorIs(t, err, etcdlock.ErrLost, p.name)
		} else {
			require.ErrorIs(t, err, etcdlock.ErrStale, p.name)
			_, err = p.Read(ctx, old)
			require.ErrorIs(t, err, etcdlock.ErrStale, p.name)
		}
		require.NoError(t, p.Write(ctx, current, 2), p.name)
		balance, err = p.Balance(ctx)
		require.NoError(t, err, p.name)
		require.Equal(t, 2, balance, p.name)
	}
}

func leaseOf(t *testing.T, client *clientv3.Client, h *etcdlock.Hold) clientv3.LeaseID {
	t.Helper()
	answer, err := client.Get(t.Context(), h.Key())
	require.NoError(t, err)
	require.Len(t, answer.Kvs, 1)
	return clientv3.LeaseID(answer.Kvs[0].Lease)
}

func TestTheServerTakesNothingForAToken(t *testing.T) {
	s := newStorage(opening)
	mux := http.NewServeMux()
	mux.HandleFunc("/account/{id}", s.account)
	for _, tt := range []struct {
		id, token, body string
		status          int
	}{
		{"fenced", "7", "1", http.StatusOK},
		{"fenced", "", "2", http.StatusPreconditionRequired},
		{"fenced", "seven", "2", http.StatusPreconditionRequired},
		{"fenced", "6", "2", http.StatusConflict},
		{"fenced", "7", "much", http.StatusBadRequest},
		{"unknown", "7", "2", http.StatusNotFound},
	} {
		request := httptest.NewRequest(http.MethodPut, "/account/"+tt.id, strings.NewReader(tt.body))
		if tt.token != "" {
			request.Header.Set(tokenHeader, tt.token)
		}
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, request)
		require.Equal(t, tt.status, answer.Code, tt)
	}
	require.Equal(t, 1, s.accounts["fenced"].balance)
}

func TestTheTimelineIsToScale(t *testing.T) {
	at := func(seconds float64) time.Time {
		return time.Unix(0, 0).Add(time.Duration(seconds * float64(time.Second)))
	}
	picture := timeline{
		aliceHolds: at(0), stopped: at(1), aliceTrusts: at(4), woken: at(8), aliceWrites: at(8),
		bobWaits: at(2), bobHolds: at(5), bobWrites: at(7),
	}.draw(7, 9)
	lines := strings.Split(picture, "\n")
	require.Equal(t, 9+9, strings.IndexByte(lines[1], 'z'), picture)
	require.Equal(t, 9+79, strings.IndexByte(lines[1], 'X'), picture)
	require.Equal(t, 9+49, strings.IndexByte(lines[2], '='), picture)
	require.Equal(t, 9+69, strings.IndexByte(lines[2], 'W'), picture)
	require.Contains(t, picture, "bob, token 9")
}

func TestTheTimelineHasRoomForAllItsWords(t *testing.T) {
	for column := range width {
		at := time.Unix(0, 0).Add(time.Duration(column) * time.Second)
		picture := timeline{
			aliceHolds: time.Unix(0, 0), stopped: at, aliceTrusts: at, woken: at, bobWaits: at, bobHolds: at, bobWrites: at,
			aliceWrites: time.Unix(width, 0),
		}.draw(1000, 1001)
		require.Equal(t, 5, strings.Count(picture, "^"), picture)
		require.Contains(t, picture, "bob, token 1001, holds the lock")
	}
}
