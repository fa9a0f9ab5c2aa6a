package etcdlock_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// waitABit is between looks for what gives no signal.
const waitABit = 2 * time.Millisecond

// many is the width of locks that any number can hold at a time.
const many = 1000

// kind is a way to get a Locker. The conformance suite runs over all of them.
type kind struct {
	title string
	width int // how many can hold it at a time
	keys  int // of a hold
	open  func(src session.Source, name string) etcdlock.Locker
	queue func(name string) string // where its tickets are, for a name that needs no escaping
}

var kinds = []kind{
	{"Mutex", 1, 1, func(src session.Source, name string) etcdlock.Locker {
		return etcdlock.NewMutex(src, name)
	}, inNamespace},
	{"Mutex at a prefix", 1, 1, func(src session.Source, name string) etcdlock.Locker {
		return etcdlock.NewMutex(src, name, etcdlock.AtPrefix())
	}, func(name string) string { return name }},
	{"Mutex with local hand-over", 1, 1, func(src session.Source, name string) etcdlock.Locker {
		return alone{src, name}
	}, inNamespace},
	{"RWMutex", 1, 1, func(src session.Source, name string) etcdlock.Locker {
		return etcdlock.NewRWMutex(src, name)
	}, inNamespace},
	{"readers of a RWMutex", many, 1, func(src session.Source, name string) etcdlock.Locker {
		return etcdlock.NewRWMutex(src, name).RLocker()
	}, inNamespace},
	{"Semaphore of 1", 1, 1, func(src session.Source, name string) etcdlock.Locker {
		return etcdlock.NewSemaphore(src, name, 1)
	}, inNamespace},
	{"Semaphore of 3", 3, 1, func(src session.Source, name string) etcdlock.Locker {
		return etcdlock.NewSemaphore(src, name, 3)
	}, inNamespace},
	{"Semaphore with slots", 2, 2, func(src session.Source, name string) etcdlock.Locker {
		return etcdlock.NewSemaphore(src, name, 2, etcdlock.WithSlots())
	}, inNamespace},
	{"Multi", 1, 3, func(src session.Source, name string) etcdlock.Locker {
		return etcdlock.NewMulti(src, etcdlock.NewMutex(src, name),
			etcdlock.NewRWMutex(src, name+" stock"), etcdlock.NewRWMutex(src, name+" prices").RLocker())
	}, inNamespace},
	{"stripe", 1, 1, func(src session.Source, name string) etcdlock.Locker {
		return etcdlock.NewStriped(src, name, 8).For("apple")
	}, func(name string) string { return inNamespace(name + "%2F7") }},
	{"ReentrantLock", 1, 1, func(src session.Source, name string) etcdlock.Locker {
		return outermost{etcdlock.Reentrant(etcdlock.NewMutex(src, name))}
	}, inNamespace},
}

func inNamespace(name string) string { return "etcdlock/" + name }

// alone is a Mutex with a local line in which never more than one is.
type alone struct {
	src  session.Source
	name string
}

func (a alone) mutex() *etcdlock.Mutex {
	return etcdlock.NewMutex(a.src, a.name, etcdlock.WithLocalHandover(time.Second, 10))
}

func (a alone) Lock(ctx context.Context) (*etcdlock.Hold, error)    { return a.mutex().Lock(ctx) }
func (a alone) TryLock(ctx context.Context) (*etcdlock.Hold, error) { return a.mutex().TryLock(ctx) }

// outermost never enters again what it holds.
type outermost struct{ lock *etcdlock.ReentrantLock }

func (o outermost) Lock(ctx context.Context) (*etcdlock.Hold, error) {
	_, h, err := o.lock.Lock(ctx)
	return h, err
}

func (o outermost) TryLock(ctx context.Context) (*etcdlock.Hold, error) {
	_, h, err := o.lock.TryLock(ctx)
	return h, err
}

// everyKind runs a property over every kind of lock, each on a cluster of its own, and
// requires that nothing is left in etcd at its end.
func everyKind(t *testing.T, property func(t *testing.T, b *bench)) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.title, func(t *testing.T) {
			t.Parallel()
			b := &bench{kind: k, cluster: embedtest.Start(t)}
			b.client = b.cluster.Client(t)
			b.session = newSession(t, b.cluster.Client(t))
			property(t, b)
			requireNothingLeft(t, b.client)
		})
	}
}

// bench is a kind of lock, and etcd.
type bench struct {
	kind

	cluster *embedtest.Cluster
	client  *clientv3.Client
	session *session.Session
}

// orders returns a lock on a session of its own.
func (b *bench) orders(t *testing.T) etcdlock.Locker {
	t.Helper()
	return b.open(newSession(t, b.cluster.Client(t)), "orders")
}

// blocker is what nobody can hold the lock next to.
func (b *bench) blocker() *etcdlock.Mutex {
	return etcdlock.NewMutex(b.session, b.queue("orders"), etcdlock.AtPrefix())
}

// inLine returns how many hold or wait.
func (b *bench) inLine(t *testing.T) int {
	t.Helper()
	prefix := b.queue("orders") + "/"
	n := 0
	for _, kv := range keysAt(t, b.client, prefix) {
		if !strings.Contains(strings.TrimPrefix(kv, prefix), "/") {
			n++
		}
	}
	return n
}

func (b *bench) awaitInLine(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return b.inLine(t) == n }, patience, waitABit, "%d in line", n)
}

// wait puts one in line behind n others.
func (b *bench) wait(ctx context.Context, t *testing.T, l etcdlock.Locker, n int) <-chan result {
	t.Helper()
	b.awaitInLine(t, n)
	waiting := locking(ctx, l)
	b.awaitInLine(t, n+1)
	return waiting
}

// fill takes the lock as often as it can be held at a time, up to a limit.
func (b *bench) fill(t *testing.T, l etcdlock.Locker) []*etcdlock.Hold {
	t.Helper()
	var holds []*etcdlock.Hold
	for range min(b.width, 5) {
		holds = append(holds, lock(t, l))
	}
	return holds
}

func unlockAll(t *testing.T, holds []*etcdlock.Hold) {
	t.Helper()
	for _, h := range holds {
		unlock(t, h)
	}
}

// granted waits for the grant of one who is in line.
func granted(t *testing.T, waiting <-chan result) *etcdlock.Hold {
	t.Helper()
	r := await(t, "the grant", waiting)
	require.NoError(t, r.err)
	require.NoError(t, r.hold.Err())
	return r.hold
}

func requireWaiting(t *testing.T, waiting <-chan result) {
	t.Helper()
	select {
	case r := <-waiting:
		require.FailNow(t, "not waiting any more", "%v", r.err)
	default:
	}
}

// keysAt lists what is there, but for the agreed sizes of semaphores, which are meant to
// stay.
func keysAt(t *testing.T, client *clientv3.Client, prefix string) []string {
	t.Helper()
	answer, err := client.Get(within(t), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	var keys []string
	for _, kv := range answer.Kvs {
		if key := string(kv.Key); !strings.Contains(key, "/!size/") && !strings.Contains(key, "!/epoch/") {
			keys = append(keys, key)
		}
	}
	return keys
}

// Scenario R9. What is being removed in the background may take a moment.
func requireNothingLeft(t *testing.T, client *clientv3.Client) {
	t.Helper()
	require.Eventually(t, func() bool { return len(keysAt(t, client, "")) == 0 }, patience, waitABit)
}

// keysOf lists all keys of a hold.
func keysOf(h *etcdlock.Hold) []string {
	var keys []string
	for _, guard := range h.Guards() {
		keys = append(keys, string(guard.KeyBytes()))
	}
	return keys
}

// deletes tells the transaction of a release.
func deletes(message any) bool {
	for _, op := range message.(*etcdserverpb.TxnRequest).GetSuccess() {
		if op.GetRequestDeleteRange() != nil {
			return true
		}
	}
	return false
}

// touches tells the transactions that concern keys that begin with prefix.
func touches(prefix string, of func(any) bool) embedtest.FaultOption {
	return embedtest.When(func(message any) bool {
		return of(message) && strings.Contains(fmt.Sprint(message), prefix)
	})
}
