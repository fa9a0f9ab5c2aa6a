package fairqueue_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/session"
)

// states is what a follower is told.
type states struct {
	told  chan []fairqueue.Entry
	ended <-chan error
}

func follow(t *testing.T, ctx context.Context, q *fairqueue.Queue) *states {
	ctx, stop := context.WithCancel(ctx)
	s := &states{told: make(chan []fairqueue.Entry, 1000)}
	s.ended = background(t, func() error {
		for entries, err := range q.Follow(ctx) {
			if err != nil {
				return err
			}
			s.told <- entries
		}
		return nil
	})
	t.Cleanup(stop)
	return s
}

func (s *states) next(t testing.TB) []fairqueue.Entry {
	t.Helper()
	select {
	case entries := <-s.told:
		return entries
	case err := <-s.ended:
		require.Fail(t, "it has ended", "%v", err)
	case <-time.After(patience):
		require.Fail(t, "nothing is told")
	}
	return nil
}

// Whatever happens to the watch, every state is told, in order, the empty ones and the
// shortest included, and none twice.
func TestAFollowerIsToldEveryStateInOrder(t *testing.T) {
	for name, tt := range troubles {
		t.Run(name, func(t *testing.T) {
			c, client := begin(t, embedtest.WithSize(tt.size))
			theirs, link := c.Link(t)
			watches := spyOnWatches(c)
			recheck := never // which may come before the watch has told everything
			if name == "swallowed events" || name == "watches that are not created" {
				recheck = 50 * time.Millisecond
			}
			q := fairqueue.New(open(t, theirs), "q", fairqueue.Options{Recheck: recheck})
			s := follow(t, within(t, 2*patience), q)
			require.Empty(t, s.next(t))
			watches.await(t, 1)
			over := func() {}
			for range 2 {
				// Two swap, one comes and goes, and nobody is there.
				set(t, client, "q/a", "1")
				set(t, client, "q/b", "2")
				remove(t, client, "q/a")
				set(t, client, "q/nested/a", "another queue's")
				set(t, client, "q/a", "3")
				remove(t, client, "q/nested/a")
				remove(t, client, "q/b")
				set(t, client, "q/a", "4")
				remove(t, client, "q/a")
				set(t, client, "q/c", "5")
				over()
				for _, want := range []string{"1", "12", "2", "23", "3", "4", "", "5"} {
					require.Equal(t, want, values(s.next(t)))
				}
				remove(t, client, "q/c")
				require.Empty(t, values(s.next(t)))
				over = tt.begin(t, c, link, watches)
			}
			require.Empty(t, s.told)
		})
	}
}

func TestFollowingNeedsNoSessionAndEndsWithItsContextOrLoop(t *testing.T) {
	c, client := begin(t)
	keeper := session.Keep(client)
	s := open(t, client)
	require.NoError(t, s.Close(within(t, patience)))
	grants := c.Calls("LeaseGrant")
	put(t, client, "q/a")
	for _, source := range []session.Source{keeper, s} {
		q := queueAt(source, "q")
		require.Len(t, entriesOf(t, q), 1)
		ctx, cancel := context.WithCancel(within(t, patience))
		told := follow(t, ctx, q)
		require.Len(t, told.next(t), 1)
		cancel()
		require.NoError(t, result(t, told.ended))
		require.Empty(t, told.told)
		for entries, err := range q.Follow(within(t, patience)) {
			require.NoError(t, err)
			require.Len(t, entries, 1)
			break
		}
		cancel()
		for entries, err := range q.Follow(ctx) {
			require.Fail(t, "its context is over", "%v %v", entries, err)
		}
	}
	require.Equal(t, grants, c.Calls("LeaseGrant"))
}

// Whatever else uses the stream may leave it before etcd has confirmed the follower's watch.
func TestAFollowerGoesOnWhileItsStreamIsLeftAgainAndAgain(t *testing.T) {
	c, client, q := beginQueue(t)
	held := c.Hold("Watch")
	s := follow(t, within(t, patience), q)
	require.Empty(t, s.next(t))
	for stream := range int64(4) {
		eventually(t, "the watch is asked for", func() bool { return held.Bites() > int(stream) })
		link.StreamsOf(client).LeaveStream(stream)
	}
	held.Heal()
	set(t, client, "q/a", "1")
	require.Len(t, s.next(t), 1)
}

func TestAFollowerIsToldOfAValueThatNoWatchDelivers(t *testing.T) {
	c, client := begin(t)
	put(t, client, "q/a")
	s := follow(t, within(t, patience), fairqueue.New(open(t, client), "q", fairqueue.Options{Recheck: 50 * time.Millisecond}))
	require.Empty(t, values(s.next(t)))
	c.SwallowWatchEvents()
	set(t, client, "q/a", "1")
	require.Equal(t, "1", values(s.next(t)))
}
