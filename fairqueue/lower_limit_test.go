package fairqueue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
)

// withLimit starts etcd with another --max-txn-ops.
func withLimit(t testing.TB, limit uint) *embedtest.Cluster {
	return embedtest.Start(t, embedtest.WithConfig(func(cfg *embed.Config) { cfg.MaxTxnOps = limit }))
}

// Each place takes one comparison and one write. What a join and a try do besides must not take any from them.
func TestAGroupHasAsManyPlacesAsEtcdAllows(t *testing.T) {
	for _, mode := range []fairqueue.Mode{fairqueue.Exclusive, fairqueue.Shared} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			c := withLimit(t, 16)
			client := c.Client(t)
			s, other := open(t, client), open(t, client)
			all := make([]fairqueue.Place, 15)
			for i := range all {
				q := fairqueue.New(s, fmt.Sprint("g/", i), fairqueue.WithRecheck(20*time.Millisecond))
				all[i] = fairqueue.Place{Queue: q, Mode: mode}
			}
			last := places(other, 15)[14].Queue
			for range 3 {
				g := joinAll(t, s, all...)
				require.NoError(t, g.Wait(within(t, patience)))
				require.Len(t, keysUnder(t, client, "g"), 15)
				leave(t, g)
				require.Empty(t, keysUnder(t, client, "g"))

				g, err := fairqueue.TryAny(within(t, patience), s, 15, all...)
				require.NoError(t, err)
				require.NoError(t, g.Wait(within(t, patience)))
				waiting := join(t, last, fairqueue.Exclusive)
				require.NoError(t, g.ReleaseAfter(within(t, patience), time.Millisecond))
				require.NoError(t, waiting.Wait(within(t, patience)))

				_, err = fairqueue.TryAny(within(t, patience), s, 15, all...)
				require.ErrorIs(t, err, fairqueue.ErrBusy)
				g = joinAll(t, s, all...)
				rechecks := spyOnRequests(c, "Txn", looking)
				blocked := wait(t, within(t, patience), g)
				rechecks.await(t, 4)
				requireWaiting(t, blocked)
				leave(t, waiting)
				requireGranted(t, blocked)
				leave(t, g)
			}
			_, err := fairqueue.JoinAll(within(t, patience), s, places(s, 17)...)
			var tooMany *fairqueue.TooManyError
			require.ErrorAs(t, err, &tooMany)
			require.Equal(t, fairqueue.TooManyError{Places: 17}, *tooMany)
			require.Empty(t, keysUnder(t, client, "g"))
		})
	}
}

// Where the loss of a part is looked for while all others wait, the last part counts as well.
func TestAWaitingGroupMissesAnyPart(t *testing.T) {
	_, client := begin(t)
	s, other := open(t, client), open(t, client)
	all := make([]fairqueue.Place, 127)
	for i := range all {
		q := fairqueue.New(s, fmt.Sprint("g/", i), fairqueue.WithRecheck(50*time.Millisecond))
		all[i] = fairqueue.Place{Queue: q, Mode: fairqueue.Exclusive}
	}
	first := hold(t, places(other, 1)[0].Queue, fairqueue.Exclusive)
	g := joinAll(t, s, all...)
	waiting := wait(t, within(t, patience), g)
	guards := g.Guards()
	remove(t, client, string(guards[126].KeyBytes()))
	require.ErrorIs(t, result(t, waiting), fairqueue.ErrGone)
	leave(t, first)
	eventuallyEmpty(t, client, "g")
}
