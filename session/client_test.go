package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

// startClient returns a client of a new etcd that the test closes.
func startClient(t *testing.T, cfg clientv3.Config) *clientv3.Client {
	t.Helper()
	cfg.Endpoints = startEtcd(t).Endpoints()
	client, err := clientv3.New(cfg)
	require.NoError(t, err)
	return client
}

func TestASessionIsLostWhenItsClientIsClosed(t *testing.T) {
	client := startClient(t, clientv3.Config{})
	s, err := session.New(t.Context(), client, session.WithTTL(time.Hour))
	require.NoError(t, err)
	waiting := make(chan error, 1)
	w, err := s.Link().Watch(t.Context(), time.Minute, "", "key")
	require.NoError(t, err)
	go func() {
		for range w.Events {
		}
		waiting <- s.Link().Call(context.Background(), silent)
	}()

	require.NoError(t, request.CheckClient(client))
	require.NoError(t, client.Close())
	require.EqualError(t, request.CheckClient(client), "the client was closed")
	<-s.Done()
	require.ErrorIs(t, s.Err(), session.ErrLost)
	require.ErrorContains(t, s.Err(), "the client was closed")
	require.ErrorIs(t, <-waiting, s.Err())
	_, err = session.New(t.Context(), client)
	require.ErrorContains(t, err, "session: creating a lease: the client was closed")
}

// The context in a client's Config is often one that bounds the dialling.
func TestASessionOutlastsTheContextThatItsClientWasMadeWith(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	client := startClient(t, clientv3.Config{Context: ctx})
	s, err := session.New(t.Context(), client)
	require.NoError(t, err)
	cancel()
	require.NoError(t, s.Renew(t.Context()))
	require.NoError(t, s.Err())
	require.NoError(t, request.CheckClient(client))
	require.NoError(t, client.Close())
	<-s.Done()
	require.ErrorContains(t, s.Err(), "the client was closed")
}

func TestASessionThatHasEndedLooksAtNoClient(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	client := startClient(t, clientv3.Config{Context: ctx})
	for _, end := range []func(*session.Session){
		func(s *session.Session) { require.NoError(t, s.Close(t.Context())); cancel() },
		func(s *session.Session) { require.NoError(t, s.Close(t.Context())) },
	} {
		s, err := session.New(t.Context(), client)
		require.NoError(t, err)
		end(s)
		require.ErrorIs(t, s.Err(), session.ErrClosed)
	}
	require.NoError(t, client.Close())
}
