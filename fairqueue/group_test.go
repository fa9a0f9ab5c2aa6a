package fairqueue_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// places makes exclusive places at g/0, g/1 and so on.
func places(s session.Source, n int) []fairqueue.Place {
	return placesWith(s, n, fairqueue.Options{Recheck: never}, fairqueue.Exclusive)
}

func placesWith(s session.Source, n int, o fairqueue.Options, m fairqueue.Mode) (all []fairqueue.Place) {
	for i := range n {
		all = append(all, fairqueue.Place{Queue: fairqueue.New(s, fmt.Sprint("g/", i), o), Mode: m})
	}
	return all
}

func requireTooMany(t testing.TB, err error, want fairqueue.TooManyError) {
	t.Helper()
	var got *fairqueue.TooManyError
	require.ErrorAs(t, err, &got)
	require.Equal(t, want, *got)
	require.ErrorContains(t, err, fmt.Sprint(want.Places))
}

func joinN(t testing.TB, s session.Source, n int, p ...fairqueue.Place) *fairqueue.Ticket {
	t.Helper()
	g, err := fairqueue.JoinN(within(t, patience), s, n, p...)
	require.NoError(t, err)
	return g
}

func joinAll(t testing.TB, s session.Source, p ...fairqueue.Place) *fairqueue.Ticket {
	t.Helper()
	return joinN(t, s, len(p), p...)
}

// creatingAll fits the transactions that create the tickets of n places.
func creatingAll(n int) func(any) bool {
	return func(message any) bool {
		r, ok := message.(*etcdserverpb.TxnRequest)
		return ok && creating(message) && len(r.Compare) == n+1 // and the epoch
	}
}

// leavingAll fits the transaction with which a group of n leaves.
func leavingAll(n int) func(any) bool {
	return func(message any) bool {
		r, ok := message.(*etcdserverpb.TxnRequest)
		return ok && len(r.Success) == n && len(r.Compare) == n && r.Success[0].GetRequestDeleteRange() != nil
	}
}

func TestAsManyPlacesAsATransactionCarries(t *testing.T) {
	_, client := begin(t)
	s, other := open(t, client), open(t, client)
	for _, n := range []int{22, 64, 65, 100, 127} { // beyond 64 a join brings back nothing of the queues
		g := joinAll(t, s, places(s, n)...)
		require.NoError(t, g.Wait(within(t, patience)))
		require.Len(t, keysUnder(t, client, "g"), n)
		behind := joinAll(t, other, places(other, n)...)
		waiting := wait(t, within(t, patience), behind)
		leave(t, g)
		requireGranted(t, waiting)
		leave(t, behind)
	}
	for _, n := range []int{64, 65, 127} {
		tried, err := fairqueue.TryN(within(t, patience), s, n, places(s, n)...)
		require.NoError(t, err)
		err = errorOf(fairqueue.TryN(within(t, patience), other, n, places(other, n)...))
		require.ErrorIs(t, err, fairqueue.ErrBusy)
		require.Len(t, keysUnder(t, client, "g"), n)
		leave(t, tried)
		one := joinN(t, s, 1, places(s, n)...)
		require.NoError(t, one.Wait(within(t, patience)))
		require.Equal(t, []string{one.Key()}, keysUnder(t, client, "g"))
		leave(t, one)
	}

	before := storeRevision(t, client)
	for _, n := range []int{129, 130} {
		for _, take := range []func(context.Context, session.Source, int, ...fairqueue.Place) (*fairqueue.Ticket, error){fairqueue.JoinN, fairqueue.TryN} {
			err := errorOf(take(within(t, patience), s, 129, places(s, n)...))
			requireTooMany(t, err, fairqueue.TooManyError{Places: 129, Limit: 127})
		}
	}
	require.Equal(t, before, storeRevision(t, client))
	for n, of := range map[int]int{0: 0, 3: 2} {
		require.Panics(t, func() { joinN(t, s, n, places(s, of)...) })
	}

	// Of many places a few are taken, however many there are.
	few, err := fairqueue.TryN(within(t, patience), s, 2, places(s, 200)...)
	require.NoError(t, err)
	require.Len(t, few.Chosen(), 2)
}
