package versions

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const (
	// patience bounds what must happen at some time, so that a test fails rather than
	// hangs. Nothing is measured by it.
	patience = time.Minute

	// pause is between looks for what gives no signal.
	pause = 5 * time.Millisecond

	// longTTL keeps leases from running out, so that only what a test does ends them.
	longTTL = 10 * time.Minute

	// shortTTL is for leases that are to run out. Not the smallest one: a renewal may have
	// to wait for a processor.
	shortTTL = 3 * time.Second
)

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// newSession returns a session with a client of its own, as in another process.
func newSession(t *testing.T, e *etcd) *session.Session {
	t.Helper()
	s, err := session.New(within(t), e.client(t), session.WithTTL(longTTL))
	require.NoError(t, err)
	t.Cleanup(func() { closeSoon(s) })
	return s
}

// newKeeper is newSession for a source that replaces what is lost.
func newKeeper(t *testing.T, e *etcd) *session.Keeper {
	t.Helper()
	k := session.Keep(e.client(t), session.WithTTL(longTTL))
	t.Cleanup(func() { closeSoon(k) })
	return k
}

// closeSoon closes what may have been lost in the test, and bounds the wait for it.
func closeSoon(s interface{ Close(context.Context) error }) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.Close(ctx)
}

// name returns one that no other test uses, since they share the servers. It needs no
// escaping.
func name(t *testing.T) string { return strings.ReplaceAll(t.Name(), "/", "-") }

// inNamespace is where the queue of a name is.
func inNamespace(name string) string { return "etcdlock/" + name }

func lock(t *testing.T, l etcdlock.Locker) *etcdlock.Hold {
	t.Helper()
	h, err := l.Lock(within(t))
	require.NoError(t, err)
	return h
}

func unlock(t *testing.T, h *etcdlock.Hold) {
	t.Helper()
	require.NoError(t, h.Unlock(within(t)))
}

// await waits for a channel to be closed or to deliver.
func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		require.FailNow(t, "still waiting for "+what)
		panic("unreachable")
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, patience, pause, what)
}

type got[T any] struct {
	it  T
	err error
}

// going calls f in the background and delivers what it returned.
func going[T any](f func() (T, error)) <-chan got[T] {
	c := make(chan got[T], 1)
	go func() {
		it, err := f()
		c <- got[T]{it, err}
	}()
	return c
}

// taken waits for what going delivers, which must not be an error.
func taken[T any](t *testing.T, what string, c <-chan got[T]) T {
	t.Helper()
	r := await(t, what, c)
	require.NoError(t, r.err, what)
	return r.it
}

// inLine calls join in the background, and returns when it has put a key below prefix.
func inLine[T any](t *testing.T, c *clientv3.Client, prefix string, join func() (T, error)) <-chan got[T] {
	t.Helper()
	before := count(t, c, prefix)
	result := going(join)
	eventually(t, "one more in line", func() bool { return count(t, c, prefix) > before })
	return result
}

func count(t *testing.T, c *clientv3.Client, prefix string) int64 {
	t.Helper()
	answer, err := c.Get(within(t), prefix+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	return answer.Count
}

func revoke(t *testing.T, c *clientv3.Client, lease clientv3.LeaseID) {
	t.Helper()
	_, err := c.Revoke(within(t), lease)
	require.NoError(t, err)
}
