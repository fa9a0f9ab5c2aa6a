package link_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/session"
)

const soon = 5 * time.Second

func watch(t *testing.T, s *session.Session, name, key string) *link.Watch {
	t.Helper()
	w, err := s.Link().Watch(t.Context(), soon, name, key)
	require.NoError(t, err)
	return w
}

// awaitEnd waits until w is closed.
func awaitEnd(w *link.Watch) {
	for range w.Events {
	}
}

// deletion waits until w tells that key was deleted, and returns when that was.
func deletion(t *testing.T, w *link.Watch, key string) int64 {
	t.Helper()
	for response := range w.Events {
		require.NoError(t, response.Err())
		for _, event := range response.Events {
			if event.Type == clientv3.EventTypeDelete && string(event.Kv.Key) == key {
				return event.Kv.ModRevision
			}
		}
	}
	require.Fail(t, "the watch ended")
	return 0
}

func remove(t *testing.T, c *clientv3.Client, key string) int64 {
	t.Helper()
	answer, err := c.Delete(t.Context(), key)
	require.NoError(t, err)
	return answer.Header.Revision
}

func TestAKeptWatchGoesToTheNextOfItsName(t *testing.T) {
	c := startEtcd(t)
	client := c.Client(t)
	s := create(t, client)
	created := put(t, client, "k", s.Lease())
	first := watch(t, s, "k", "k")
	require.Equal(t, created, first.From)
	deleted := remove(t, client, "k")
	require.Equal(t, deleted, deletion(t, first, "k"))
	first.Keep(deleted)

	put(t, client, "k", s.Lease())
	again := remove(t, client, "k") // while nobody listens
	other := watch(t, s, "other", "k")
	defer other.Stop()
	require.Equal(t, again, other.From, "of another name, from now on")
	require.NotEqual(t, first.Events, other.Events)
	next := watch(t, s, "k", "k")
	require.Equal(t, first.Events, next.Events)
	require.Equal(t, deleted, next.From)
	require.Equal(t, again, deletion(t, next, "k"))

	third := watch(t, s, "k", "k")
	require.NotEqual(t, next.Events, third.Events, "each is used by one at a time")
	next.Keep(0)
	require.Equal(t, deleted, next.From, "what has been heard stays heard")
	third.Stop()
}

// A connection may have as few as two streams, one of them for requests.
func TestAStreamThatIsLeftKeepsNoWatch(t *testing.T) {
	c := startEtcd(t)
	client := c.Client(t)
	s, other := create(t, client), create(t, client)
	watches := []*link.Watch{watch(t, s, "", "k"), watch(t, s, "", "l"), watch(t, other, "", "k")}
	s.Link().LeaveStream(watches[0].Stream)
	for _, w := range watches {
		awaitEnd(w)
		<-w.Ended
	}
	next := watch(t, other, "", "k")
	defer next.Stop()
	require.Equal(t, watches[0].Stream+1, next.Stream)
	until(t, func() bool { return c.OpenStreams("Watch") == 1 })
	s.Link().LeaveStream(watches[0].Stream)
	put(t, client, "k", s.Lease())
	require.Equal(t, remove(t, client, "k"), deletion(t, next, "k"), "that stream had been left before")
}

// Whatever the callers' contexts carry.
func TestWatchesOfASessionShareAStream(t *testing.T) {
	c := startEtcd(t)
	s := create(t, c.Client(t))
	for i := range 100 {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "request-id", fmt.Sprint(i))
		w, err := s.Link().Watch(ctx, soon, "k", "k")
		require.NoError(t, err)
		defer w.Stop()
	}
	require.EqualValues(t, 1, c.StreamsOpened("Watch"))
}

// For each stream the client authenticates, with a raft entry.
func TestTheStreamOfWatchesStaysOpenWhereOneCostsAnAuthentication(t *testing.T) {
	c := startEtcd(t, embedtest.WithAuth("secret"))
	s := create(t, c.Client(t))
	for range 3 {
		w := watch(t, s, "", "k")
		until(t, func() bool { return c.Calls("Watch") >= 2 }) // the other keeps the stream
		w.Stop()
		awaitEnd(w)
	}
	require.EqualValues(t, 1, c.StreamsOpened("Watch"))

	s.Link().LeaveStream(0)
	w := watch(t, s, "", "k")
	defer w.Stop()
	until(t, func() bool { return c.OpenStreams("Watch") == 1 }) // the other has ended
	require.EqualValues(t, 2, c.StreamsOpened("Watch"))
}

func TestWatchesThatAreNotKept(t *testing.T) {
	c := startEtcd(t)
	s := create(t, c.Client(t))
	t.Run("without a name", func(t *testing.T) {
		w := watch(t, s, "", "k")
		w.Keep(0)
		awaitEnd(w)
	})
	t.Run("on a stream that has been left", func(t *testing.T) {
		w := watch(t, s, "k", "k")
		w.Keep(0)
		s.Link().LeaveStream(w.Stream)
		next := watch(t, s, "k", "k")
		require.Equal(t, w.Stream+1, next.Stream)
		awaitEnd(w)
		next.Stop()
	})
	t.Run("beyond 64", func(t *testing.T) {
		var kept []*link.Watch
		for i := range 66 {
			kept = append(kept, watch(t, s, fmt.Sprint("k", i), "k"))
		}
		for _, w := range kept {
			w.Keep(0)
		}
		awaitEnd(kept[64])
		awaitEnd(kept[65])
		w := watch(t, s, "k63", "k")
		require.Equal(t, kept[63].Events, w.Events)
		w.Stop()
	})
	t.Run("at the end of the session", func(t *testing.T) {
		short := create(t, s.Client())
		w, late := watch(t, short, "k", "k"), watch(t, short, "l", "k")
		w.Keep(0)
		require.NoError(t, short.Close(t.Context()))
		awaitEnd(w)
		late.Keep(0)
		awaitEnd(late)
		_, err := short.Link().Watch(t.Context(), soon, "k", "k")
		require.ErrorIs(t, err, session.ErrClosed)
	})
}

func TestAWatchIsKeptForASecond(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, _ *line, s *session.Session) {
		began := time.Now()
		first, second := watch(t, s, "a", "a"), watch(t, s, "b", "b")
		first.Keep(0)
		time.Sleep(600 * time.Millisecond)
		second.Keep(0)
		time.Sleep(300 * time.Millisecond)
		used := watch(t, s, "b", "b")
		require.Equal(t, second.Events, used.Events)
		used.Keep(0)

		awaitEnd(first)
		require.Equal(t, time.Second, time.Since(began))
		awaitEnd(used)
		require.Equal(t, 1900*time.Millisecond, time.Since(began))

		again := watch(t, s, "a", "a")
		again.Keep(0)
		awaitEnd(again)
		require.Equal(t, 2900*time.Millisecond, time.Since(began))
	})
}

// W4, W7
func TestAWatchThatDoesNotBeginHasALimit(t *testing.T) {
	c := startEtcd(t)
	s := create(t, c.Client(t))
	creating := embedtest.When(func(message any) bool {
		r, ok := message.(*etcdserverpb.WatchRequest)
		return ok && r.GetCreateRequest() != nil
	})
	t.Run("of its own", func(t *testing.T) {
		lost := c.LoseRequest("Watch", creating, embedtest.Once())
		defer lost.Heal()
		_, err := s.Link().Watch(t.Context(), 50*time.Millisecond, "k", "k")
		require.ErrorContains(t, err, "not created in time")
		w := watch(t, s, "k", "k")
		require.Equal(t, int64(1), w.Stream, "another one")
		w.Stop()
	})
	t.Run("the caller's", func(t *testing.T) {
		lost := c.LoseRequest("Watch", creating, embedtest.Once())
		defer lost.Heal()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := s.Link().Watch(ctx, soon, "k", "k")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		until(t, func() bool { // callers that give up early leave the stream as well, but not at once
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			w, err := s.Link().Watch(ctx, soon, "k", "k")
			if err == nil {
				w.Stop()
			}
			return err == nil
		})
	})
	t.Run("only until it has begun", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w, err := s.Link().Watch(ctx, soon, "k", "k")
		require.NoError(t, err)
		cancel()
		put(t, s.Client(), "k", s.Lease())
		require.Equal(t, remove(t, s.Client(), "k"), deletion(t, w, "k"))
		w.Stop()
	})
}
