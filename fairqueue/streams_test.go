package fairqueue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// All waiters and observers move to the next stream together, or none would be left for renewals.
func TestTwoStreamsAreEnoughWhenAnEventIsSwallowed(t *testing.T) {
	c, client := begin(t, embedtest.WithConfig(func(cfg *embed.Config) { cfg.MaxConcurrentStreams = 2 }))
	others := open(t, c.Client(t))
	s, second := open(t, client), open(t, client)
	holders := map[string]*fairqueue.Ticket{}
	waiting := map[string]<-chan error{}
	for name, q := range map[string]*fairqueue.Queue{"b": queueAt(s, "b"), "c": queueAt(second, "c")} {
		holders[name] = hold(t, queueAt(others, name), fairqueue.Exclusive)
		waiting[name] = standing(t, c, join(t, q, fairqueue.Exclusive))
	}
	following := follow(t, within(t, patience), queueAt(session.Keep(client), "d"))
	require.Empty(t, following.next(t))
	eventually(t, "all watch", func() bool { return c.OpenStreams("Watch") == 1 && c.Calls("Watch") >= 3 })

	swallowed := c.SwallowWatchEvents(embedtest.Once())
	a := fairqueue.New(s, "a", fairqueue.Options{Recheck: time.Second})
	for swallowed.Bites() == 0 { // or a recheck comes before the event
		owner, waiter := hold(t, queueAt(others, "a"), fairqueue.Exclusive), join(t, a, fairqueue.Exclusive)
		granted := standing(t, c, waiter)
		leave(t, owner)
		requireGranted(t, granted)
		leave(t, waiter)
	}
	eventually(t, "all have moved", func() bool { return c.StreamsOpened("Watch") == 2 && c.OpenStreams("Watch") == 1 })
	require.NoError(t, s.Renew(within(t, patience)))
	leave(t, holders["b"])
	requireGranted(t, waiting["b"])
	leave(t, holders["c"])
	requireGranted(t, waiting["c"])
	put(t, client, "d/1")
	require.Len(t, following.next(t), 1)
}
