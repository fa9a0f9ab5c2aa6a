package coord_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/coord"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// recipeCall is a call that waits, or makes a request.
type recipeCall struct {
	op      string
	call    func(ctx context.Context, k *session.Keeper) error
	waits   bool   // for what does not happen
	waiting string // where it then has a key, if it has one
}

func recipeCalls() []recipeCall {
	once := func(k *session.Keeper) *coord.Once { return coord.NewOnce(k, "x") }
	latch := func(k *session.Keeper) *coord.Latch { return coord.NewLatch(k, "x", 2) }
	return []recipeCall{
		{op: "do", waits: true, waiting: "etcdlock/x!/once/lock/", call: func(ctx context.Context, k *session.Keeper) error {
			_, err := once(k).Do(ctx, func(context.Context, *etcdlock.Hold) (coord.Outcome, error) {
				return coord.Outcome{}, errors.New("the function was called")
			})
			return err
		}},
		{op: "done", call: func(ctx context.Context, k *session.Keeper) error {
			_, _, err := once(k).Done(ctx)
			return err
		}},
		{op: "reset", waits: true, waiting: "etcdlock/x!/once/lock/", call: func(ctx context.Context, k *session.Keeper) error { return once(k).Reset(ctx) }},
		{op: "arrive", call: func(ctx context.Context, k *session.Keeper) error { return latch(k).Arrive(ctx, "id") }},
		{op: "wait", waits: true, call: func(ctx context.Context, k *session.Keeper) error { return latch(k).Wait(ctx) }},
		{op: "arrived", call: func(ctx context.Context, k *session.Keeper) error {
			_, err := latch(k).Arrived(ctx)
			return err
		}},
		{op: "reset", call: func(ctx context.Context, k *session.Keeper) error { return latch(k).Reset(ctx) }},
		{op: "await", waits: true, waiting: "etcdlock/x!/barrier/line/", call: func(ctx context.Context, k *session.Keeper) error {
			_, err := coord.NewBarrier(k, "x", 2).Await(ctx)
			return err
		}},
	}
}

// requireWrapped checks that the error has the operation and the name, once, and wraps another one.
func requireWrapped(t *testing.T, err error, op string, wrapped error) {
	t.Helper()
	require.ErrorIs(t, err, wrapped)
	var e *etcdlock.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, op, e.Op)
	require.Equal(t, "x", e.Name)
	require.NotErrorAs(t, e.Err, new(*etcdlock.Error), "wrapped twice: %v", err)
}

// blockOnce holds the lock of the Once named x, so that its calls wait.
func blockOnce(t *testing.T, client *clientv3.Client) {
	t.Helper()
	m := etcdlock.NewMutex(keep(t, client), "lock", etcdlock.WithNamespace("etcdlock/x!/once"))
	_, err := m.Lock(limited(t))
	require.NoError(t, err)
}

func TestContextsThatAreOverEndEveryCallWithTheirError(t *testing.T) {
	t.Parallel()
	cluster, client := start(t)
	k := keep(t, client)
	cause := errors.New("a cause")
	cancelled, cancel := context.WithCancelCause(limited(t))
	cancel(cause)
	late, stop := context.WithDeadline(limited(t), time.Now().Add(-time.Second))
	defer stop()
	before := cluster.AppliedIndex()
	for _, c := range append(recipeCalls(), membersCalls()...) {
		switch c.op {
		case "observe":
			require.NoError(t, c.call(cancelled, k), "it yields nothing")
			continue
		case "keep", "run":
			requireWrapped(t, c.call(cancelled, k), c.op, cause)
		default:
			requireWrapped(t, c.call(cancelled, k), c.op, context.Canceled)
		}
		requireWrapped(t, c.call(late, k), c.op, context.DeadlineExceeded)
	}
	require.Equal(t, before, cluster.AppliedIndex())
}

func TestContextsThatEndMeanwhileEndEveryWaitWithTheirError(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	k := keep(t, client)
	blockOnce(t, client)
	for _, c := range recipeCalls() {
		if !c.waits {
			continue
		}
		short, stop := context.WithTimeout(limited(t), 200*time.Millisecond)
		requireWrapped(t, c.call(short, k), c.op, context.DeadlineExceeded)
		stop()

		ctx, cancel := context.WithCancelCause(limited(t))
		ended := make(chan error)
		go func() { ended <- c.call(ctx, k) }()
		awaitTicket(t, client, c)
		cancel(errors.New("a cause"))
		requireWrapped(t, <-ended, c.op, context.Canceled)
	}
}

// awaitTicket waits until the call is in line, if it ever is.
func awaitTicket(t *testing.T, client *clientv3.Client, c recipeCall) {
	t.Helper()
	if c.waiting == "" {
		return
	}
	want := int64(1)
	if c.op != "await" {
		want = 2 // with that of blockOnce
	}
	requireWaiting(t, client, c.waiting, want)
}

func TestSessionsThatAreClosedEndWhatNeedsOne(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	blockOnce(t, client)
	for _, c := range recipeCalls() {
		if c.waiting == "" {
			continue
		}
		k := keep(t, client)
		ended := make(chan error)
		go func() { ended <- c.call(limited(t), k) }()
		awaitTicket(t, client, c)
		require.NoError(t, k.Close(limited(t)))
		requireWrapped(t, <-ended, c.op, etcdlock.ErrClosed)
		requireWrapped(t, c.call(limited(t), k), c.op, etcdlock.ErrClosed)
	}
	closed := keep(t, client)
	require.NoError(t, closed.Close(limited(t)))
	for _, c := range membersCalls() {
		if slices.Contains([]string{"join", "keep", "run"}, c.op) {
			requireWrapped(t, c.call(limited(t), closed), c.op, etcdlock.ErrClosed)
		}
	}
}

// membersCalls are the calls about members.
func membersCalls() []recipeCall {
	group := func(k *session.Keeper) *coord.Group { return coord.NewGroup(k, "x") }
	parts := func(k *session.Keeper) *coord.Shards { return coord.NewShards(k, "x", 2) }
	return []recipeCall{
		{op: "join", call: func(ctx context.Context, k *session.Keeper) error {
			_, err := group(k).Join(ctx, "id", "")
			return err
		}},
		{op: "keep", call: func(ctx context.Context, k *session.Keeper) error { return group(k).Keep(ctx, "id", "") }},
		{op: "members", call: func(ctx context.Context, k *session.Keeper) error {
			_, err := group(k).Members(ctx)
			return err
		}},
		{op: "observe", call: func(ctx context.Context, k *session.Keeper) error { return lastOf(group(k).Observe(ctx)) }},
		{op: "run", call: func(ctx context.Context, k *session.Keeper) error {
			return parts(k).Run(ctx, "id", func(context.Context, *etcdlock.Hold, int) error { return errors.New("the work was called") })
		}},
		{op: "owners", call: func(ctx context.Context, k *session.Keeper) error {
			_, err := parts(k).Owners(ctx)
			return err
		}},
		{op: "observe", call: func(ctx context.Context, k *session.Keeper) error { return lastOf(parts(k).Observe(ctx)) }},
	}
}

// lastOf returns the last error of a sequence.
func lastOf[T any](all iter.Seq2[T, error]) (last error) {
	for _, last = range all {
	}
	return last
}

func TestEveryCallReportsALossWhenTheClientIsClosed(t *testing.T) {
	t.Parallel()
	cluster, _ := start(t)
	client, err := cluster.NewClient()
	require.NoError(t, err)
	k := keep(t, client)
	require.NoError(t, client.Close())
	for _, c := range append(recipeCalls(), membersCalls()...) {
		err := c.call(limited(t), k)
		requireWrapped(t, err, c.op, etcdlock.ErrLost)
		require.ErrorContains(t, err, "the client was closed")
	}
}

func TestAPartyWhoseSessionIsLostGetsErrLost(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	k := keep(t, client)
	ended := make(chan error)
	go func() {
		_, err := coord.NewBarrier(k, "x", 2).Await(limited(t))
		ended <- err
	}()
	requireWaiting(t, client, "etcdlock/x!/barrier/line/", 1)
	s, err := k.Session(limited(t))
	require.NoError(t, err)
	_, err = client.Revoke(limited(t), s.Lease())
	require.NoError(t, err)
	requireWrapped(t, <-ended, "await", etcdlock.ErrLost)
}

// An attempt to make the mark has an unknown outcome, and then the lock is lost.
func TestAMarkThatMayHaveBeenMadeIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	cluster, client := start(t)
	k := keep(t, client)
	var healing func()
	_, err := coord.NewOnce(k, "x").Do(limited(t), func(ctx context.Context, _ *etcdlock.Hold) (coord.Outcome, error) {
		fault := cluster.LoseReply("Txn", embedtest.Once())
		s, err := k.Session(ctx)
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = fault.Wait(ctx)
			_, _ = client.Revoke(limited(t), s.Lease())
			fault.Heal()
		}()
		healing = func() { <-done }
		return coord.Outcome{Value: "made"}, nil
	})
	healing()
	requireWrapped(t, err, "do", etcdlock.ErrOutcomeUnknown)
	value, done, err := coord.NewOnce(k, "x").Done(limited(t))
	require.NoError(t, err)
	require.True(t, done)
	require.Equal(t, "made", value)
}
