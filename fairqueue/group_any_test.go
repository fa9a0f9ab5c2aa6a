package fairqueue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

func joinN(t testing.TB, s session.Source, n int, p ...fairqueue.Place) *fairqueue.Ticket {
	t.Helper()
	g, err := fairqueue.JoinN(within(t, patience), s, n, p...)
	require.NoError(t, err)
	return g
}

func TestAWaiterForAnyGetsWhatIsFreeFirstAndGivesUpTheRest(t *testing.T) {
	c, client := begin(t)
	s, other := open(t, client), open(t, client)
	var held []*fairqueue.Ticket
	for _, p := range places(other, 4) {
		held = append(held, hold(t, p.Queue, fairqueue.Exclusive))
	}
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
	holders := []*fairqueue.Ticket{}
	for _, p := range places(other, 2) {
		holders = append(holders, hold(t, p.Queue, fairqueue.Exclusive))
	}
	watches := spyOnWatches(c)
	var waiting []<-chan error
	var groups []*fairqueue.Ticket
	for i := range 3 {
		s := open(t, client)
		groups = append(groups, joinN(t, s, 1, places(s, 2)...))
		waiting = append(waiting, wait(t, within(t, patience), groups[i]))
		watches.await(t, 2*(i+1))
	}
	leave(t, holders[1])
	requireGranted(t, waiting[0])
	require.Equal(t, []int{1}, groups[0].Chosen())
	requireWaiting(t, waiting[1])
	leave(t, holders[0])
	requireGranted(t, waiting[1])
	require.Equal(t, []int{0}, groups[1].Chosen())
	requireWaiting(t, waiting[2])
	require.NoError(t, groups[0].Leave(within(t, patience)))
	requireGranted(t, waiting[2])
	require.Equal(t, []int{1}, groups[2].Chosen())
}

// The lost reply of giving up the rest must not end the rest of the rest.
func TestALostReplyOfTheChoiceIsHarmless(t *testing.T) {
	c, client := begin(t)
	s := open(t, client)
	g := joinN(t, s, 1, places(s, 3)...)
	fault := c.LoseReply("Txn", embedtest.Once())
	waiting := wait(t, within(t, patience), g)
	require.NoError(t, fault.Wait(within(t, patience)))
	fault.Heal()
	requireGranted(t, waiting)
	require.Equal(t, []string{g.Key()}, keysUnder(t, client, "g"))
	require.Equal(t, g.Revision(), revisionOf(t, client, g.Key()))
}

// One of the chosen is removed while the rest is being given up.
func TestAChoiceThatIsGoneIsNoGrant(t *testing.T) {
	c, client := begin(t)
	s := open(t, client)
	put(t, client, "g/2/694d")
	g := joinN(t, s, 2, places(s, 3)...)
	fault := c.Hold("Txn", embedtest.Once(), embedtest.When(leaving))
	waiting := wait(t, within(t, patience), g)
	require.NoError(t, fault.Wait(within(t, patience)))
	for _, key := range keysUnder(t, client, "g/0") {
		remove(t, client, key)
	}
	fault.Heal()
	require.ErrorIs(t, result(t, waiting), fairqueue.ErrGone)
	eventually(t, "its keys are gone", func() bool { return len(keysUnder(t, client, "g")) == 1 })
}

// The request that gives up the rest arrives when a name of the rest is somebody else's.
func TestALateChoiceDoesNotTakeWhatAnotherHolds(t *testing.T) {
	c, client := begin(t)
	s := open(t, client)
	g := joinN(t, s, 1, places(s, 2)...)
	fault := c.Hold("Txn", embedtest.Once(), embedtest.When(leaving))
	waiting := wait(t, within(t, patience), g)
	require.NoError(t, fault.Wait(within(t, patience)))
	requireGranted(t, waiting) // by the next attempt
	other := hold(t, places(s, 2)[1-g.Chosen()[0]].Queue, fairqueue.Exclusive)
	arrive(t, c, fault)
	require.Equal(t, other.Revision(), revisionOf(t, client, other.Key()))
}

// Never busy while enough are free, however many come together.
func TestTriesForAnyDoNotFailAsLongAsEnoughAreFree(t *testing.T) {
	_, client := begin(t)
	const n = 12
	var mu sync.Mutex
	taken := map[int]bool{}
	try := func(s *session.Session) error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		g, err := fairqueue.TryN(ctx, s, 2, places(s, 2*n)...)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, i := range g.Chosen() {
			if taken[i] {
				return fmt.Errorf("%d is taken twice", i)
			}
			taken[i] = true
		}
		return nil
	}
	var tries []<-chan error
	for range n {
		s := open(t, client)
		tries = append(tries, background(t, func() error { return try(s) }))
	}
	for _, tried := range tries {
		require.NoError(t, result(t, tried))
	}
	require.Len(t, keysUnder(t, client, "g"), 2*n)

	before := storeRevision(t, client)
	require.ErrorIs(t, try(open(t, client)), fairqueue.ErrBusy)
	require.Equal(t, before, storeRevision(t, client))
}

// Those places count as free in which shared ones are, if a shared one is wanted.
func TestTryAnyOfSharedPlaces(t *testing.T) {
	_, client := begin(t)
	s, other := open(t, client), open(t, client)
	p := places(s, 3)
	hold(t, places(other, 3)[0].Queue, fairqueue.Shared)
	hold(t, places(other, 3)[1].Queue, fairqueue.Exclusive)
	put(t, client, "g/2/x/1") // of another queue
	for i := range p {
		p[i].Mode = fairqueue.Shared
	}
	g, err := fairqueue.TryN(within(t, patience), s, 2, p...)
	require.NoError(t, err)
	require.Equal(t, []int{0, 2}, g.Chosen())
	require.NoError(t, g.Wait(within(t, patience)))
	_, err = fairqueue.TryN(within(t, patience), s, 3, p...)
	require.ErrorIs(t, err, fairqueue.ErrBusy)
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
	g.Abandon()
	_, err := fairqueue.JoinN(within(t, patience), s, 129, places(s, many)...)
	var tooMany *fairqueue.TooManyError
	require.ErrorAs(t, err, &tooMany)
	require.Equal(t, fairqueue.TooManyError{Places: 129, Limit: 127}, *tooMany)
}

func TestAWaiterForAnyJoinsAsManyPlacesAsEtcdAllows(t *testing.T) {
	t.Parallel()
	const many = 40
	c := embedtest.Start(t, embedtest.WithConfig(func(cfg *embed.Config) { cfg.MaxTxnOps = 16 }))
	client := c.Client(t)
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
