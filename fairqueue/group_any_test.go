package fairqueue_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

func TestAWaiterForAnyGetsWhatIsFreeFirstAndGivesUpTheRest(t *testing.T) {
	c, client := begin(t)
	s, other := open(t, client), open(t, client)
	held := holdAll(t, other, places(other, 4))
	watches := spyOnWatches(c)
	g := joinN(t, s, 2, places(s, 4)...)
	require.False(t, g.Granted())
	waiting := wait(t, within(t, patience), g)
	watches.await(t, 4)
	leave(t, held[3])
	requireWaiting(t, waiting) // one is not enough
	leave(t, held[1])
	requireGranted(t, waiting)
	require.True(t, g.Granted())
	require.Equal(t, []int{1, 3}, g.Chosen())
	require.Len(t, g.Guards(), 2)
	for i := range 4 {
		require.Len(t, keysUnder(t, client, fmt.Sprint("g/", i)), 1)
	}
	leave(t, g)
	require.Len(t, keysUnder(t, client, "g"), 2)

	// More than enough are free: the rest goes as well.
	g = joinN(t, s, 1, places(s, 4)...)
	require.NoError(t, g.Wait(within(t, patience)))
	require.Len(t, g.Chosen(), 1)
	require.Contains(t, []int{1, 3}, g.Chosen()[0])
	require.Len(t, keysUnder(t, client, "g"), 3)
}

// The first ticket is ahead in every queue, so it is served first, whichever queue is free.
func TestWaitersForAnyAreServedInOrder(t *testing.T) {
	c, client := begin(t)
	other := open(t, client)
	holders := holdAll(t, other, places(other, 2))
	watches := spyOnWatches(c)
	var waiting []<-chan error
	var groups []*fairqueue.Ticket
	for i := range 3 {
		s := open(t, client)
		groups = append(groups, joinN(t, s, 1, places(s, 2)...))
		waiting = append(waiting, wait(t, within(t, patience), groups[i]))
		watches.await(t, 2*(i+1))
	}
	for i, step := range []struct {
		leaves *fairqueue.Ticket
		free   int
	}{{holders[1], 1}, {holders[0], 0}, {groups[0], 1}} {
		leave(t, step.leaves)
		requireGranted(t, waiting[i])
		require.Equal(t, []int{step.free}, groups[i].Chosen())
		for _, later := range waiting[i+1:] {
			requireWaiting(t, later)
		}
	}
}

// One of the chosen is removed while the rest is being given up.
func TestAChoiceThatIsGoneIsNoGrant(t *testing.T) {
	c, client := begin(t)
	s := open(t, client)
	put(t, client, "g/2/694d")
	g := joinN(t, s, 2, places(s, 3)...)
	fault := c.Hold("Txn", embedtest.Once(), embedtest.When(leaving))
	waited := during(t, fault, func() error { return g.Wait(within(t, patience)) }, func() {
		remove(t, client, keysUnder(t, client, "g/0")[0])
	})
	require.ErrorIs(t, waited, fairqueue.ErrGone)
	eventually(t, "its keys are gone", func() bool { return len(keysUnder(t, client, "g")) == 1 })
}

// Never busy while enough are free, however many come together.
func TestTriesForAnyDoNotFailAsLongAsEnoughAreFree(t *testing.T) {
	_, client := begin(t)
	const n = 12
	chosen := make(chan int, 2*n)
	try := func(s *session.Session) error {
		g, err := fairqueue.TryN(within(t, patience), s, 2, places(s, 2*n)...)
		if err != nil {
			return err
		}
		for _, i := range g.Chosen() {
			chosen <- i
		}
		return nil
	}
	var tries []<-chan error
	for range n {
		s := open(t, client)
		tries = append(tries, background(t, func() error { return try(s) }))
	}
	taken := map[int]bool{}
	for _, tried := range tries {
		require.NoError(t, result(t, tried))
		taken[<-chosen], taken[<-chosen] = true, true
	}
	require.Len(t, taken, 2*n)
	require.Len(t, keysUnder(t, client, "g"), 2*n)

	before := storeRevision(t, client)
	require.ErrorIs(t, try(open(t, client)), fairqueue.ErrBusy)
	require.Equal(t, before, storeRevision(t, client))
}

// Those places count as free in which shared ones are, if a shared one is wanted.
func TestTriesForAnyOfSharedPlaces(t *testing.T) {
	_, client := begin(t)
	s, other := open(t, client), open(t, client)
	p := placesWith(s, 3, fairqueue.Options{}, fairqueue.Shared)
	hold(t, queueAt(other, "g/0"), fairqueue.Shared)
	hold(t, queueAt(other, "g/1"), fairqueue.Exclusive)
	put(t, client, "g/2/x/1") // of another queue
	g, err := fairqueue.TryN(within(t, patience), s, 2, p...)
	require.NoError(t, err)
	require.Equal(t, []int{0, 2}, g.Chosen())
	require.NoError(t, g.Wait(within(t, patience)))
	require.ErrorIs(t, errorOf(fairqueue.TryN(within(t, patience), s, 3, p...)), fairqueue.ErrBusy)
}

// holdAll takes many places, for each of which somebody else has to wait.
func holdAll(t testing.TB, s session.Source, p []fairqueue.Place) (held []*fairqueue.Ticket) {
	t.Helper()
	for _, place := range p {
		held = append(held, joinAll(t, s, place))
	}
	return held
}

// standsIn lists the places in which there is a ticket besides the one that holds it.
func standsIn(t testing.TB, client *clientv3.Client, n int) (in []int) {
	t.Helper()
	for i := range n {
		if len(keysUnder(t, client, fmt.Sprint("g/", i))) == 2 {
			in = append(in, i)
		}
	}
	return in
}

func TestAWaiterForAnyOfVeryManyWaitsForAPartOfThem(t *testing.T) {
	t.Parallel()
	const many = 130
	c := embedtest.Start(t)
	client := c.Client(t)
	s, other := open(t, client), open(t, client)
	held := holdAll(t, other, places(other, many))

	g := joinN(t, s, 1, places(s, many)...)
	part := standsIn(t, client, many)
	require.Len(t, part, 64)
	waiting := wait(t, within(t, patience), g)
	require.NoError(t, held[part[7]].Leave(within(t, patience)))
	requireGranted(t, waiting)
	require.Equal(t, []int{part[7]}, g.Chosen())
	require.Empty(t, standsIn(t, client, many))

	g = joinN(t, s, 100, places(s, many)...)
	require.NotEqual(t, part, standsIn(t, client, many))
	require.Len(t, g.Chosen(), 100)
}

func TestAWaiterForAnyJoinsAsManyPlacesAsEtcdAllows(t *testing.T) {
	t.Parallel()
	const many = 40
	client := withLimit(t, 16).Client(t)
	s, other := open(t, client), open(t, client)
	held := holdAll(t, other, places(other, many))
	g := joinN(t, s, 2, places(s, many)...)
	part := standsIn(t, client, many)
	require.Less(t, len(part), many)
	waiting := wait(t, within(t, patience), g)
	for _, i := range part[1:3] {
		require.NoError(t, held[i].Leave(within(t, patience)))
	}
	requireGranted(t, waiting)
	require.Equal(t, part[1:3], g.Chosen())
	require.Len(t, keysUnder(t, client, "g"), many, "it stands nowhere else any more")
	leave(t, g)
}
