package coord_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/coord"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const quick = 100 * time.Millisecond // settle time of most tests

type work = func(ctx context.Context, h *etcdlock.Hold, shard int) error

// obey works until it is told to stop.
func obey(ctx context.Context, _ *etcdlock.Hold, _ int) error {
	<-ctx.Done()
	return nil
}

// runner is a member of a test.
type runner struct {
	sessions *session.Keeper
	stop     context.CancelCauseFunc
	over     chan struct{}
	err      error // of Run, once over is closed
}

var errStop = errors.New("stop")

func run(t testing.TB, client *clientv3.Client, s func(session.Source) *coord.Shards, id string, w work) *runner {
	t.Helper()
	ctx, stop := context.WithCancelCause(limited(t))
	r := &runner{sessions: keep(t, client, session.WithTTL(10*time.Second)), stop: stop, over: make(chan struct{})}
	go func() {
		defer close(r.over)
		r.err = s(r.sessions).Run(ctx, id, w)
	}()
	t.Cleanup(func() { _ = r.end() })
	return r
}

// end ends a Run, and its session.
func (r *runner) end() error {
	r.stop(errStop)
	<-r.over
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = r.sessions.Close(ctx)
	return r.err
}

func shardsOf(n int, opts ...coord.Option) func(session.Source) *coord.Shards {
	return func(src session.Source) *coord.Shards {
		return coord.NewShards(src, "x", n, append([]coord.Option{coord.WithSettle(quick)}, opts...)...)
	}
}

// awaitShares waits until each id owns that many shards, and all have an owner.
func awaitShares(t testing.TB, client *clientv3.Client, n int, want map[string]int) {
	t.Helper()
	got := map[string]int{}
	for owners, err := range shardsOf(n)(keep(t, client)).Observe(limited(t)) {
		require.NoError(t, err)
		got = map[string]int{}
		for _, o := range owners {
			got[o.ID]++
		}
		if fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
	}
	require.Fail(t, "no such shares", "%v, not %v", got, want)
}

func TestShardsAreSharedEvenlyAndHandedOn(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	a := run(t, client, shardsOf(16), "a", obey)
	awaitShares(t, client, 16, map[string]int{"a": 16})
	b := run(t, client, shardsOf(16), "b", obey)
	awaitShares(t, client, 16, map[string]int{"a": 8, "b": 8})
	c := run(t, client, shardsOf(16), "c", obey)
	awaitShares(t, client, 16, map[string]int{"a": 5, "b": 6, "c": 5})
	err := a.end()
	require.ErrorIs(t, err, errStop)
	require.ErrorContains(t, err, `run "x"`)
	awaitShares(t, client, 16, map[string]int{"b": 8, "c": 8})
	require.ErrorIs(t, b.end(), errStop)
	require.ErrorIs(t, c.end(), errStop)
	requireEmpty(t, client)
}

func TestShardsGoByWeight(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	run(t, client, shardsOf(16, coord.WithWeight(3)), "heavy", obey)
	run(t, client, shardsOf(16), "light", obey)
	awaitShares(t, client, 16, map[string]int{"heavy": 12, "light": 4})
}

func TestMemberThatComesAndGoesWithinTheSettleTimeMovesNothing(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, _ *embedtest.Cluster, client *clientv3.Client) {
		slow := shardsOf(4, coord.WithSettle(2*time.Second))
		var told atomic.Int32
		run(t, client, slow, "a", func(ctx context.Context, _ *etcdlock.Hold, _ int) error {
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), coord.ErrReassigned) {
				told.Add(1)
			}
			return nil
		})
		awaitShares(t, client, 4, map[string]int{"a": 4})
		b := run(t, client, slow, "b", func(context.Context, *etcdlock.Hold, int) error {
			t.Error("b has a shard")
			return nil
		})
		require.Eventually(t, func() bool {
			answer, err := client.Get(limited(t), "etcdlock/x!/shards/members/b/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			return err == nil && answer.Count == 1
		}, patience, time.Millisecond)
		<-time.After(300 * time.Millisecond) // it stays for a while
		require.ErrorIs(t, b.end(), errStop)
		run(t, client, slow, "c", obey)
		awaitShares(t, client, 4, map[string]int{"a": 2, "c": 2})
		require.EqualValues(t, 2, told.Load())
	})
}

func TestFewerShardsThanMembers(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	a := run(t, client, shardsOf(1), "a", obey)
	awaitShares(t, client, 1, map[string]int{"a": 1})
	run(t, client, shardsOf(1), "b", obey)
	require.ErrorIs(t, a.end(), errStop)
	awaitShares(t, client, 1, map[string]int{"b": 1})
}

// The next owner waits until the work of the one before has returned, which is told why to stop.
func TestShardIsReleasedWhenItsWorkHasReturned(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	stopping, release := make(chan int), make(chan struct{})
	var began sync.Map // tokens by shard
	run(t, client, shardsOf(2), "a", func(ctx context.Context, h *etcdlock.Hold, shard int) error {
		began.Store(shard, h.Token())
		<-ctx.Done()
		if errors.Is(context.Cause(ctx), coord.ErrReassigned) {
			stopping <- shard
			<-release
			require.NoError(t, h.Err())
			return context.Cause(ctx) // counts as the end of the context
		}
		return ctx.Err()
	})
	awaitShares(t, client, 2, map[string]int{"a": 2})
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free)
	tokens := make(chan etcdlock.Token, 1)
	run(t, client, shardsOf(2), "b", func(ctx context.Context, h *etcdlock.Hold, shard int) error {
		before, _ := began.Load(shard)
		require.Greater(t, h.Token(), before)
		tokens <- h.Token()
		return obey(ctx, h, shard)
	})
	shard := <-stopping
	line, err := client.Get(limited(t), fmt.Sprintf("etcdlock/x!/shards/%d/", shard), clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, line.Kvs, 2, "the next owner is in line when the work is told to stop")
	free()
	require.Equal(t, max(line.Kvs[0].CreateRevision, line.Kvs[1].CreateRevision), int64(<-tokens))
	awaitShares(t, client, 2, map[string]int{"a": 1, "b": 1})
}

func TestErrorOfAWorkEndsRun(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	broken := errors.New("broken")
	var others sync.WaitGroup // without a Lock under way, whose key would be removed after Run
	others.Add(3)
	r := run(t, client, shardsOf(4), "a", func(ctx context.Context, h *etcdlock.Hold, shard int) error {
		if shard == 2 {
			others.Wait()
			return fmt.Errorf("%w, and %w", broken, context.DeadlineExceeded) // that of a context of its own
		}
		others.Done()
		<-ctx.Done()
		return ctx.Err()
	})
	<-r.over
	require.ErrorIs(t, r.err, broken)
	require.ErrorContains(t, r.err, `run "x": the work of shard 2: broken`)
	owners, err := shardsOf(4)(keep(t, client)).Owners(limited(t))
	require.NoError(t, err)
	require.Equal(t, make([]coord.Owner, 4), owners)
}

// Only that of its own Hold is expected.
func TestLossOfAnotherLockInAWorkEndsRun(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	calls := 0
	r := run(t, client, shardsOf(1), "a", func(ctx context.Context, h *etcdlock.Hold, _ int) error {
		if calls++; calls > 1 {
			return obey(ctx, h, 0)
		}
		return fmt.Errorf("of another lock: %w", etcdlock.ErrLost)
	})
	<-r.over
	require.ErrorIs(t, r.err, etcdlock.ErrLost)
	require.ErrorContains(t, r.err, "the work of shard 0: of another lock")
	require.Equal(t, 1, calls)
}

// What a work reports while it stops is not lost.
func TestErrorOfAWorkThatStopsIsReported(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	broken := errors.New("broken")
	began := make(chan struct{})
	r := run(t, client, shardsOf(1), "a", func(ctx context.Context, _ *etcdlock.Hold, _ int) error {
		close(began)
		<-ctx.Done()
		return broken
	})
	<-began
	err := r.end()
	require.ErrorIs(t, err, errStop)
	require.ErrorIs(t, err, broken)
}

func TestWorkThatReturnsIsCalledAgainUnderTheSameHold(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	tokens := make(chan etcdlock.Token)
	run(t, client, shardsOf(1), "a", func(ctx context.Context, h *etcdlock.Hold, _ int) error {
		select {
		case tokens <- h.Token():
		case <-ctx.Done():
		}
		return nil
	})
	first := <-tokens
	require.Equal(t, first, <-tokens)
}

type valueKey struct{}

func TestWorkHasTheValuesOfTheContextOfRun(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx, stop := context.WithCancelCause(context.WithValue(limited(t), valueKey{}, "value"))
	err := shardsOf(1)(keep(t, client)).Run(ctx, "a", func(ctx context.Context, h *etcdlock.Hold, _ int) error {
		require.Equal(t, "value", ctx.Value(valueKey{}))
		require.NoError(t, etcdlock.RequireHeld(ctx, h.Name()))
		stop(errStop)
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), errStop)
		require.NoError(t, h.Err(), "it has the shard until it returns")
		return ctx.Err()
	})
	require.ErrorIs(t, err, errStop)
}

func TestPanicOfAWorkIsThatOfRun(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	sessions := keep(t, client)
	broken := errors.New("broken")
	var caught any
	func() {
		defer func() { caught = recover() }()
		_ = shardsOf(4)(sessions).Run(limited(t), "a", func(ctx context.Context, h *etcdlock.Hold, shard int) error {
			if shard == 1 {
				panic(broken)
			}
			return obey(ctx, h, shard)
		})
	}()
	p, ok := caught.(*coord.PanicError)
	require.True(t, ok, "%v", caught)
	require.Equal(t, 1, p.Shard)
	require.ErrorIs(t, p, broken)
	require.Contains(t, string(p.Stack), "TestPanicOfAWorkIsThatOfRun")
	require.NoError(t, sessions.Close(limited(t)))
	requireEmpty(t, client)

	r := run(t, client, shardsOf(1), "a", func(context.Context, *etcdlock.Hold, int) error {
		runtime.Goexit()
		return nil
	})
	<-r.over
	require.ErrorContains(t, r.err, "ended its goroutine")
}

func TestAnotherNumberOfShardsIsRefused(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	a := run(t, client, shardsOf(4), "a", obey)
	awaitShares(t, client, 4, map[string]int{"a": 4})
	b := run(t, client, shardsOf(5), "b", obey)
	<-b.over
	count := (*coord.CountError)(nil)
	require.ErrorAs(t, b.err, &count)
	require.Equal(t, coord.CountError{What: "shards", ID: "b", Count: 5, Other: "a", Declared: 4}, *count)
	require.ErrorContains(t, b.err, `run "x": coord: "b" has declared 5 shards, but "a", which was there before, 4`)
	awaitShares(t, client, 4, map[string]int{"a": 4})
	require.ErrorIs(t, a.end(), errStop)
	run(t, client, shardsOf(5), "b", obey)
	awaitShares(t, client, 5, map[string]int{"b": 5})
}

// The weights of all together are 0 in 64 bits.
func TestWhatNoMemberCanHaveDeclaredDoesNotCount(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := limited(t)
	lease, err := client.Grant(ctx, 60)
	require.NoError(t, err)
	for i, value := range []string{
		"", "x", "{}", "[]", `{"shards":4}`, `{"shards":4,"weight":"1"}`, `{"shards":4,"weight":0}`, `{"shards":4,"weight":-1}`,
		`{"shards":4,"weight":9223372036854775807}`, `{"shards":4,"weight":9223372036854775807}`,
	} {
		key := fmt.Sprintf("etcdlock/x!/shards/members/%d/l%x-0", i, int64(lease.ID))
		_, err := client.Put(ctx, key, value, clientv3.WithLease(lease.ID))
		require.NoError(t, err)
	}
	r := run(t, client, shardsOf(4, coord.WithWeight(2)), "a", obey)
	awaitShares(t, client, 4, map[string]int{"a": 4})
	require.ErrorIs(t, r.end(), errStop)
}

func TestSameIDIsRefused(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, _ *embedtest.Cluster, client *clientv3.Client) {
		run(t, client, shardsOf(2), "a", obey)
		awaitShares(t, client, 2, map[string]int{"a": 2})
		second := run(t, client, shardsOf(2), "a", func(context.Context, *etcdlock.Hold, int) error {
			t.Error("the second works")
			return nil
		})
		<-second.over
		require.ErrorIs(t, second.err, coord.ErrIDTaken)
	})
}

func TestLossOfASessionEndsWorksAndNotRun(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, _ *embedtest.Cluster, client *clientv3.Client) {
		begun, causes := make(chan struct{}, 8), make(chan error, 8)
		r := run(t, client, shardsOf(2), "a", func(ctx context.Context, h *etcdlock.Hold, _ int) error {
			begun <- struct{}{}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			_, err := h.Txn(ctx).Commit()
			return err
		})
		for range 2 {
			awaitShares(t, client, 2, map[string]int{"a": 2})
			<-begun // a shard is taken before its work begins
			<-begun
			s, err := r.sessions.Session(limited(t))
			require.NoError(t, err)
			_, err = client.Revoke(limited(t), s.Lease())
			require.NoError(t, err)
			_ = s.Renew(limited(t))
			require.ErrorIs(t, <-causes, etcdlock.ErrLost)
			require.ErrorIs(t, <-causes, etcdlock.ErrLost)
		}
		awaitShares(t, client, 2, map[string]int{"a": 2})
		require.ErrorIs(t, r.end(), errStop)
	})
}

// The member sees its membership gone before its session has learned of the loss.
func TestLossThatMembersSeeFirstIsNoReassignment(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	begun, causes := make(chan struct{}), make(chan error, 1)
	r := run(t, client, shardsOf(1, coord.WithSettle(0)), "a", func(ctx context.Context, h *etcdlock.Hold, _ int) error {
		select {
		case begun <- struct{}{}:
			<-ctx.Done()
			causes <- context.Cause(ctx)
		case <-ctx.Done():
		}
		return nil
	})
	<-begun // less than a second ago, so that its key is not watched yet
	_, err := client.Delete(limited(t), "etcdlock/x!/shards/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.ErrorIs(t, <-causes, etcdlock.ErrLost)
	<-begun
	require.ErrorIs(t, r.end(), errStop)
}

// An operator may take a shard from its owner, or the membership.
func TestShardOrMembershipThatIsRemovedByHandComesBack(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, _ *embedtest.Cluster, client *clientv3.Client) {
		r := run(t, client, shardsOf(2), "a", obey)
		awaitShares(t, client, 2, map[string]int{"a": 2})
		for _, prefix := range []string{"etcdlock/x!/shards/1/", "etcdlock/x!/shards/members/"} {
			before, err := client.Get(limited(t), prefix, clientv3.WithPrefix())
			require.NoError(t, err)
			_, err = client.Delete(limited(t), prefix, clientv3.WithPrefix())
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				after, err := client.Get(limited(t), prefix, clientv3.WithPrefix())
				return err == nil && len(after.Kvs) == 1 && after.Kvs[0].CreateRevision > before.Kvs[0].CreateRevision
			}, patience, 10*time.Millisecond)
			awaitShares(t, client, 2, map[string]int{"a": 2})
		}
		require.ErrorIs(t, r.end(), errStop)
	})
}

func TestRunEndsWithItsSource(t *testing.T) {
	t.Parallel()
	cluster, client := start(t)
	r := run(t, client, shardsOf(2), "a", obey)
	awaitShares(t, client, 2, map[string]int{"a": 2})
	require.NoError(t, r.sessions.Close(limited(t)))
	<-r.over
	require.ErrorIs(t, r.err, etcdlock.ErrClosed)

	other, err := cluster.NewClient()
	require.NoError(t, err)
	r = run(t, other, shardsOf(2), "b", obey)
	awaitShares(t, client, 2, map[string]int{"b": 2})
	require.NoError(t, other.Close())
	<-r.over
	require.Error(t, r.err)
}

func TestKeyHasAShard(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	s := shardsOf(64)(keep(t, client))
	require.Equal(t, 64, s.Count())
	require.Equal(t, "x", s.Name())
	seen := make([]int, 64)
	for i := range 6400 {
		seen[s.Of(fmt.Sprint("key ", i))]++
	}
	require.Greater(t, slices.Min(seen), 50)
	require.Equal(t, etcdlock.NewStriped(keep(t, client), "x", 64).Index("order 7"), s.Of("order 7"))
}
