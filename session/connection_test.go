package session_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/session"
)

// awaitState waits until the client's connection is in a state.
func awaitState(t *testing.T, c *clientv3.Client, want connectivity.State) {
	t.Helper()
	conn := c.ActiveConnection()
	conn.Connect()
	for state := conn.GetState(); state != want; state = conn.GetState() {
		require.True(t, conn.WaitForStateChange(t.Context(), state))
	}
}

func shortly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestErrorOfCreationTellsWhatIsWrongWithTheConnection(t *testing.T) {
	secure := startEtcd(t, embedtest.WithTLS()).Client(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	for name, test := range map[string]struct {
		cfg   clientv3.Config
		state connectivity.State
		want  string
	}{
		"wrong certificate authority": {
			clientv3.Config{Endpoints: secure.Endpoints(), TLS: &tls.Config{MinVersion: tls.VersionTLS12}},
			connectivity.TransientFailure, "x509: certificate signed by unknown authority",
		},
		"wrong address": {
			clientv3.Config{Endpoints: []string{"127.0.0.1:1"}},
			connectivity.TransientFailure, "dial tcp 127.0.0.1:1: connect: connection refused",
		},
		"nothing answers": {
			clientv3.Config{Endpoints: []string{silent.Addr().String()}},
			connectivity.Connecting, "no connection to " + silent.Addr().String(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.cfg.Logger = zap.NewNop()
			test.cfg.DialOptions = []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{ // so that it stays as it is
				Backoff: backoff.Config{BaseDelay: time.Hour, Multiplier: 1, MaxDelay: time.Hour}, MinConnectTimeout: time.Hour,
			})}
			client, err := clientv3.New(test.cfg)
			require.NoError(t, err)
			defer client.Close()
			awaitState(t, client, test.state)
			_, err = session.New(shortly(t), client)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Regexp(t, test.want, err.Error())
			k := session.Keep(client)
			_, err = k.Session(shortly(t))
			require.NoError(t, k.Close(context.Background()))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Regexp(t, test.want, err.Error())
		})
	}
}

func TestErrorOfCreationTellsThatThePasswordIsWrong(t *testing.T) {
	cluster := startEtcd(t, embedtest.WithAuth("secret", embedtest.User{Name: "user", Password: "old"}))
	client := cluster.ClientAs(t, "user")
	_, err := cluster.Client(t).UserChangePassword(t.Context(), "user", "new")
	require.NoError(t, err)
	_, err = session.New(t.Context(), client)
	require.ErrorIs(t, err, rpctypes.ErrAuthFailed)
	_, err = session.Keep(client).Session(t.Context())
	require.ErrorIs(t, err, rpctypes.ErrAuthFailed)
}

func TestErrorOfACallTellsThatTheConnectionIsBroken(t *testing.T) {
	withEtcd(t, func(t *testing.T, c *embedtest.Cluster) {
		client := c.Client(t)
		s := create(t, client)
		c.Members()[0].Stop()
		awaitState(t, client, connectivity.TransientFailure)
		for _, call := range []struct {
			name string
			do   func(context.Context) error
		}{
			{"renew", s.Renew},
			{"write", func(ctx context.Context) error {
				_, _, err := s.Link().Commit(ctx, link.Transaction{Then: []clientv3.Op{clientv3.OpPut("key", "")}})
				return err
			}},
			{"close", s.Close}, // last, since nothing works after it
		} {
			err := call.do(shortly(t))
			require.ErrorIs(t, err, context.DeadlineExceeded, call.name)
			require.ErrorContains(t, err, "connection error", call.name)
		}
		require.NoError(t, c.Members()[0].Restart())
	})
}

func TestALogOfRenewalsTellsWhatIsWrongWithTheConnection(t *testing.T) {
	withEtcd(t, func(t *testing.T, c *embedtest.Cluster) {
		log := &records{}
		create(t, c.Client(t), session.WithLogger(slog.New(log)))
		c.Members()[0].Stop()
		until(t, func() bool {
			return slices.ContainsFunc(log.Warned(), func(r slog.Record) bool { return strings.Contains(attribute(r, "error").String(), "dial") })
		})
		require.NoError(t, c.Members()[0].Restart())
	})
}
