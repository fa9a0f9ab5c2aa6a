package follow_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/internal/follow"
)

const patience = 30 * time.Second

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// startEtcd returns an etcd and a client of it.
func startEtcd(t *testing.T) (*embedtest.Cluster, *clientv3.Client) {
	t.Helper()
	t.Parallel()
	c := embedtest.Start(t)
	return c, c.Client(t)
}

func put(t *testing.T, client *clientv3.Client, key, value string) {
	t.Helper()
	_, err := client.Put(within(t), key, value)
	require.NoError(t, err)
}

func rangeOf(client *clientv3.Client, recheck time.Duration) follow.Range {
	return follow.Range{Client: client, First: "q/", End: clientv3.GetPrefixRangeEnd("q/"), Recheck: recheck}
}

// sink has the values that it was told, and tells of each change.
type sink struct {
	changed chan struct{}

	mu       sync.Mutex
	values   map[string]string
	replaced int
	failures []error
}

func (s *sink) update(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *sink) Replace(kvs []*mvccpb.KeyValue) {
	s.update(func() {
		s.replaced++
		s.values = make(map[string]string)
		for _, kv := range kvs {
			s.values[string(kv.Key)] = string(kv.Value)
		}
	})
}

func (s *sink) Apply(events []*clientv3.Event) {
	s.update(func() {
		for _, e := range events {
			if e.Type == clientv3.EventTypeDelete {
				delete(s.values, string(e.Kv.Key))
			} else {
				s.values[string(e.Kv.Key)] = string(e.Kv.Value)
			}
		}
	})
}

func (s *sink) Fail(err error) { s.update(func() { s.failures = append(s.failures, err) }) }

func (s *sink) value(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[key]
}

// await waits until the sink knows these values.
func (s *sink) await(t *testing.T, want map[string]string) {
	t.Helper()
	for ctx := within(t); ; {
		s.mu.Lock()
		done := maps.Equal(want, s.values)
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-s.changed:
		case <-ctx.Done():
			require.Equal(t, want, s.values)
		}
	}
}

func start(t *testing.T, r follow.Range) *sink {
	s := &sink{changed: make(chan struct{}, 1)}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Follow(ctx, s) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return s
}

func TestReadBeginsAgainIfItsRevisionIsCompactedBetweenThePages(t *testing.T) {
	c, client := startEtcd(t)
	for i := range 12 {
		var ops []clientv3.Op
		for j := range 100 {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("q/%04d", 100*i+j), ""))
		}
		_, err := client.Txn(within(t)).Then(ops...).Commit()
		require.NoError(t, err)
	}
	later := embedtest.When(func(message any) bool {
		r, ok := message.(*etcdserverpb.RangeRequest)
		return ok && r.Revision > 0
	})
	fault := c.Refuse("Range", rpctypes.ErrGRPCCompacted, embedtest.Once(), later)
	kvs, at, err := rangeOf(client, 0).Read(within(t), 0)
	require.NoError(t, err)
	require.Len(t, kvs, 1200)
	require.Equal(t, 1, fault.Bites())
	_, _, err = rangeOf(client, 0).Read(within(t), at+100)
	require.ErrorIs(t, err, rpctypes.ErrFutureRev, "which no other reading would change")
}

// The watch goes on as if nothing had happened, and is never silent.
func TestALostEventAmongOthersIsNoticed(t *testing.T) {
	c, client := startEtcd(t)
	s := start(t, rangeOf(c.Client(t), 50*time.Millisecond))
	put(t, client, "q/a", "1")
	s.await(t, map[string]string{"q/a": "1"})
	fault := c.SwallowWatchEvents(embedtest.Once())
	put(t, client, "q/a", "2")
	require.NoError(t, fault.Wait(within(t)))
	for deadline := time.Now().Add(patience); s.value("q/a") != "2"; {
		require.True(t, time.Now().Before(deadline), "it is not noticed")
		put(t, client, "q/b", "3")
	}
	s.await(t, map[string]string{"q/a": "2", "q/b": "3"})
}

// It could be told nothing else from then on.
func TestKeysAreReadIfNoWatchDeliversThem(t *testing.T) {
	c, client := startEtcd(t)
	s := start(t, rangeOf(c.Client(t), 50*time.Millisecond))
	put(t, client, "q/a", "1")
	s.await(t, map[string]string{"q/a": "1"})
	c.SwallowWatchEvents()
	put(t, client, "q/a", "2")
	s.await(t, map[string]string{"q/a": "2"})
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Equal(t, 2, s.replaced)
}

// A recheck of what is known costs no values.
func TestRechecksReadKeysOnly(t *testing.T) {
	c, client := startEtcd(t)
	put(t, client, "q/a", "1")
	s := start(t, rangeOf(c.Client(t), 10*time.Millisecond))
	s.await(t, map[string]string{"q/a": "1"})
	values := c.Refuse("Range", rpctypes.ErrGRPCPermissionDenied, embedtest.When(func(message any) bool {
		r, ok := message.(*etcdserverpb.RangeRequest)
		return ok && !r.KeysOnly
	}))
	rechecks := c.Delay("Range", time.Nanosecond)
	require.Eventually(t, func() bool { return rechecks.Bites() > 5 }, patience, time.Millisecond)
	require.Zero(t, values.Bites())
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(t, s.failures)
	require.Equal(t, 1, s.replaced)
}

func TestAClosedClientEndsIt(t *testing.T) {
	c, _ := startEtcd(t)
	client, err := c.NewClient()
	require.NoError(t, err)
	s := &sink{changed: make(chan struct{}, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		rangeOf(client, time.Hour).Follow(t.Context(), s)
	}()
	s.await(t, map[string]string{})
	require.NoError(t, client.Close())
	select {
	case <-ended:
	case <-within(t).Done():
		require.Fail(t, "it goes on")
	}
	require.Len(t, s.failures, 1)
	require.ErrorContains(t, errors.Join(s.failures...), "the client was closed")
}
