package etcdlock_test

import (
	"context"
	"fmt"
	"slices"
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

// many is the width of locks that any number can hold at a time.
const many = 1000

// kind is a way to get a hold. The conformance suite runs over all of them.
type kind struct {
	title  string
	width  int // how many can hold it at a time
	keys   int // of a hold
	open   opener
	queue  func(name string) string // where its tickets are, for a name that needs no escaping
	elects bool                     // see candidate
}

type opener = func(src session.Source, name string, opts ...etcdlock.Option) etcdlock.Locker

var kinds = []kind{
	{"Mutex", 1, 1, madeBy(etcdlock.NewMutex), inNamespace, false},
	{"Mutex at a prefix", 1, 1, madeBy(etcdlock.NewMutex, etcdlock.AtPrefix()), func(name string) string { return name }, false},
	{"Mutex with local hand-over", 1, 1, func(src session.Source, name string, opts ...etcdlock.Option) etcdlock.Locker {
		return alone{src, name, opts}
	}, inNamespace, false},
	{"RWMutex", 1, 1, madeBy(etcdlock.NewRWMutex), inNamespace, false},
	{"readers of a RWMutex", many, 1, func(src session.Source, name string, opts ...etcdlock.Option) etcdlock.Locker {
		return etcdlock.NewRWMutex(src, name, opts...).RLocker()
	}, inNamespace, false},
	{"upgradeable reader of a RWMutex", 1, 1, func(src session.Source, name string, opts ...etcdlock.Option) etcdlock.Locker {
		return etcdlock.NewRWMutex(src, name, opts...).Upgradeable()
	}, inNamespace, false},
	{"Semaphore of 1", 1, 1, semaphoreOf(1), inNamespace, false},
	{"Semaphore of 3", 3, 1, semaphoreOf(3), inNamespace, false},
	{"Semaphore with slots", 2, 2, semaphoreOf(2, etcdlock.WithSlots()), inNamespace, false},
	{"Multi", 1, 3, func(src session.Source, name string, opts ...etcdlock.Option) etcdlock.Locker {
		return etcdlock.NewMulti(src, etcdlock.NewMutex(src, name),
			etcdlock.NewRWMutex(src, name+" stock"), etcdlock.NewRWMutex(src, name+" prices").RLocker()).With(opts...)
	}, inNamespace, false},
	{"stripe", 1, 1, func(src session.Source, name string, opts ...etcdlock.Option) etcdlock.Locker {
		return etcdlock.NewStriped(src, name, 8, opts...).For("apple")
	}, func(name string) string { return inNamespace(name + "%2F7") }, false},
	{"any stripe", 1, 1, func(src session.Source, name string, opts ...etcdlock.Option) etcdlock.Locker {
		return anyN(etcdlock.NewStriped(src, name, 1, opts...), 1)
	}, func(name string) string { return inNamespace(name + "%2F0") }, false},
	{"ReentrantLock", 1, 1, func(src session.Source, name string, opts ...etcdlock.Option) etcdlock.Locker {
		return outermost{etcdlock.Reentrant(etcdlock.NewMutex(src, name, opts...))}
	}, inNamespace, false},
	{"candidate of Election", 1, 1, func(src session.Source, name string, opts ...etcdlock.Option) etcdlock.Locker {
		return candidate{etcdlock.NewElection(src, name, opts...)}
	}, inNamespace, true},
}

// madeBy opens locks with a constructor, which has some options more.
func madeBy[L etcdlock.Locker](construct func(session.Source, string, ...etcdlock.Option) L, more ...etcdlock.Option) opener {
	return func(src session.Source, name string, opts ...etcdlock.Option) etcdlock.Locker {
		return construct(src, name, append(opts, more...)...)
	}
}

func semaphoreOf(size int64, more ...etcdlock.Option) opener {
	return func(src session.Source, name string, opts ...etcdlock.Option) etcdlock.Locker {
		return etcdlock.NewSemaphore(src, name, size, append(opts, more...)...)
	}
}

func inNamespace(name string) string { return "etcdlock/" + name }

// alone is a Mutex with a local line in which never more than one is.
type alone struct {
	src  session.Source
	name string
	opts []etcdlock.Option
}

func (a alone) mutex() *etcdlock.Mutex {
	return etcdlock.NewMutex(a.src, a.name, append(a.opts, etcdlock.WithLocalHandover(time.Second, 10))...)
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

// candidate has two properties of its own: an election has no TryLock, so it waits there as well, and a
// candidate whose key is removed is in line again.
type candidate struct{ election *etcdlock.Election }

func (c candidate) Lock(ctx context.Context) (*etcdlock.Hold, error) {
	term, err := c.election.Campaign(ctx, "me")
	if err != nil {
		return nil, err
	}
	return term.Hold, nil
}

func (c candidate) TryLock(ctx context.Context) (*etcdlock.Hold, error) { return c.Lock(ctx) }

// everyKind runs a property over every kind of lock, each on a cluster of its own, and
// requires that nothing is left in etcd at its end, and that the hooks have told of all ends.
func everyKind(t *testing.T, property func(t *testing.T, b *bench), opts ...embedtest.Option) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.title, func(t *testing.T) {
			b := &bench{kind: k}
			counts := &balance{}
			b.open = func(src session.Source, name string, opts ...etcdlock.Option) etcdlock.Locker {
				return k.open(src, name, append(opts, etcdlock.WithHooks(counts.hooks()))...)
			}
			b.cluster, b.client = newCluster(t, opts...)
			b.session = newSession(t, b.cluster.Client(t))
			property(t, b)
			requireNothingLeft(t, b.client)
			counts.requireEven(t)
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
func (b *bench) fill(t *testing.T, l etcdlock.Locker) (holds []*etcdlock.Hold) {
	t.Helper()
	for range min(b.width, 5) {
		holds = append(holds, lock(t, l))
	}
	return holds
}

// requireBusy requires that a TryLock is refused, where there is one.
func (b *bench) requireBusy(t *testing.T, l etcdlock.Locker) {
	t.Helper()
	if !b.elects {
		requireBusy(t, l)
	}
}

// bothCalls are the ways to get the lock.
func bothCalls(l etcdlock.Locker) []func(context.Context) (*etcdlock.Hold, error) {
	return []func(context.Context) (*etcdlock.Hold, error){l.Lock, l.TryLock}
}

// keysAt lists what is there, but for the agreed sizes of semaphores and the epochs of sessions, which are meant
// to stay.
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

// What is being removed in the background may take a moment.
func requireNothingLeft(t *testing.T, client *clientv3.Client) {
	t.Helper()
	require.Eventually(t, func() bool { return len(keysAt(t, client, "")) == 0 }, patience, waitABit)
}

// keysOf lists all keys of a hold.
func keysOf(h *etcdlock.Hold) (keys []string) {
	for _, guard := range h.Guards() {
		keys = append(keys, string(guard.KeyBytes()))
	}
	return keys
}

// createdAt returns the create revision of a key, which has to be there.
func createdAt(t *testing.T, client *clientv3.Client, key string) etcdlock.Token {
	t.Helper()
	answer, err := client.Get(within(t), key)
	require.NoError(t, err)
	require.Len(t, answer.Kvs, 1, key)
	return etcdlock.Token(answer.Kvs[0].CreateRevision)
}

// creates tells the transaction of a join, or another that puts something, from those that remove tickets.
func creates(message any) bool {
	return slices.ContainsFunc(message.(*etcdserverpb.TxnRequest).GetSuccess(), func(op *etcdserverpb.RequestOp) bool {
		return op.GetRequestPut() != nil
	})
}

// deletes tells the transaction of a release.
func deletes(message any) bool {
	return slices.ContainsFunc(message.(*etcdserverpb.TxnRequest).GetSuccess(), func(op *etcdserverpb.RequestOp) bool {
		return op.GetRequestDeleteRange() != nil
	})
}

// touches tells the transactions that concern keys that begin with prefix.
func touches(prefix string, of func(any) bool) embedtest.FaultOption {
	return embedtest.When(func(message any) bool {
		return of(message) && strings.Contains(fmt.Sprint(message), prefix)
	})
}
