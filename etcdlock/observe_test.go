package etcdlock_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// observer returns an election that has had no reason to create a session yet.
func observer(client *clientv3.Client) *etcdlock.Election {
	return etcdlock.NewElection(session.Keep(client), "controller")
}

// observed observes through client, from the beginning until there is a leader called "end".
func (c *contest) observed(client *clientv3.Client) observation {
	c.t.Helper()
	seen := observing(within(c.t), observer(client), "end")
	require.True(c.t, await(c.t, "the present state", seen.first).Vacant())
	return seen
}

// terms has a candidate lead and resign some times, and returns what there is to be seen of that.
func terms(t *testing.T, e *etcdlock.Election) (all []etcdlock.Leader) {
	for i := range 3 {
		term := lead(t, e, strconv.Itoa(i))
		all = append(all, leader(term, strconv.Itoa(i)), etcdlock.Leader{})
		resign(t, term)
	}
	return all
}

func TestObserveTellsEveryChangeInOrder(t *testing.T) {
	c := newContest(t)
	seen := c.observed(c.cluster.Client(t))
	leases, err := c.client.Leases(within(t))
	require.NoError(t, err)
	require.Empty(t, leases.Leases, "it needs no session")

	want := []etcdlock.Leader{{}}
	one, two := c.candidate(), c.candidate()
	for i := range 20 { // swapping quickly, with a vacancy and without
		first := lead(t, one, "one "+strconv.Itoa(i))
		require.NoError(t, first.Proclaim(within(t), "one, again"))
		require.NoError(t, first.Proclaim(within(t), "one, again"), "which is no change")
		c.standOn(two, "two "+strconv.Itoa(i))
		resign(t, first)
		second := c.next("two " + strconv.Itoa(i))
		resign(t, second)
		want = append(want, leader(first, "one "+strconv.Itoa(i)), leader(first, "one, again"),
			leader(second, "two "+strconv.Itoa(i)), etcdlock.Leader{})
		// What is compacted before it has been told cannot be told.
		require.Eventually(t, func() bool { return seen.count.Load() == int64(len(want)) }, patience, waitABit)
		_, err := c.cluster.Compact(within(t))
		require.NoError(t, err)
	}
	want = append(want, leader(lead(t, one, "end"), "end"))
	require.Equal(t, want, await(t, "the observer", seen.all))
}

func TestObserveLeavesNothingOutWhateverHappensToEtcd(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(*testing.T, *contest, *embedtest.Link, *etcdlock.Election) []etcdlock.Leader{
		"cut": func(t *testing.T, _ *contest, link *embedtest.Link, e *etcdlock.Election) []etcdlock.Leader {
			defer link.Heal()
			link.Cut()
			return terms(t, e)
		},
		"black hole": func(t *testing.T, _ *contest, link *embedtest.Link, e *etcdlock.Election) []etcdlock.Leader {
			defer link.Heal()
			link.Blackhole()
			return terms(t, e)
		},
		"members and leaders": func(t *testing.T, c *contest, _ *embedtest.Link, e *etcdlock.Election) (all []etcdlock.Leader) {
			for _, m := range c.cluster.Members() {
				term := lead(t, e, m.Name())
				require.NoError(t, c.cluster.MoveLeader(within(t), m))
				require.NoError(t, m.Restart())
				all = append(all, leader(term, m.Name()), etcdlock.Leader{})
				resign(t, term)
			}
			return all
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newContest(t, embedtest.WithSize(3))
			client, link := c.cluster.Link(t)
			seen := c.observed(client)
			e := c.candidate()
			want := []etcdlock.Leader{{}}
			for range 2 {
				want = append(want, trouble(t, c, link, e)...)
			}
			want = append(want, leader(lead(t, e, "end"), "end"))
			require.Equal(t, want, await(t, "the observer", seen.all))
		})
	}
}

// What is compacted cannot be told, but how things stand then is.
func TestObserveGoesOnAfterACompactionOfWhatItMissed(t *testing.T) {
	c := newContest(t)
	client, link := c.cluster.Link(t)
	seen := c.observed(client)
	e := c.candidate()
	link.Cut()
	want := append([]etcdlock.Leader{{}}, terms(t, e)...)
	last := lead(t, e, "stays")
	_, err := c.cluster.Compact(within(t))
	require.NoError(t, err)
	before := c.cluster.Calls("Watch")
	link.Heal()
	awaitWatch(t, c.cluster, before)
	resign(t, last)
	want = append(want, leader(last, "stays"), leader(lead(t, e, "end"), "end"))
	require.Subset(t, want, await(t, "the observer", seen.all))
}

func TestObserveEndsWithItsContextAndWithAnInvalidName(t *testing.T) {
	_, client := newCluster(t)
	ctx, cancel := context.WithCancel(within(t))
	seen := observing(ctx, observer(client), "end")
	await(t, "the present state", seen.first)
	cancel()
	require.Len(t, await(t, "the end", seen.all), 1)
	require.Empty(t, await(t, "the end", observing(cancelled(), observer(client), "end").all))

	var told []error
	for _, err := range etcdlock.NewElection(session.Keep(client), "").Observe(within(t)) {
		told = append(told, err)
	}
	require.Len(t, told, 1, "once")
	require.ErrorIs(t, told[0], etcdlock.ErrInvalidName)
}

func TestObserveTellsThatEtcdRefusesAndGoesOn(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct {
		refuse func(*embedtest.Cluster) *embedtest.Fault
		errors int      // that are waited for
		seen   []string // before the first of them
	}{
		"to be read": {func(c *embedtest.Cluster) *embedtest.Fault {
			return c.Refuse("Range", rpctypes.ErrPermissionDenied, embedtest.When(func(message any) bool {
				return !message.(*etcdserverpb.RangeRequest).CountOnly // which only finds out what is not permitted
			}))
		}, 2, nil},
		// That another stream may help is no reason to keep silent when it does not.
		"every watch": {func(c *embedtest.Cluster) *embedtest.Fault {
			return c.Refuse("Watch", rpctypes.ErrPermissionDenied)
		}, 1, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newContest(t)
			refusal := one.refuse(c.cluster)
			var seen []string
			refused := 0
			for leader, err := range observer(c.client).Observe(within(t)) {
				switch {
				case err == nil:
					seen = append(seen, leader.Value)
				case refused < one.errors:
					require.True(t, leader.Vacant())
					require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
					require.Equal(t, one.seen, seen)
					if refused++; refused == one.errors {
						refusal.Heal()
						lead(t, c.candidate(), "me")
					}
				}
				if leader.Value == "me" {
					break
				}
			}
			require.Equal(t, "me", seen[len(seen)-1])
			require.LessOrEqual(t, len(seen), 2)
			require.GreaterOrEqual(t, refusal.Bites(), 2, "it has been tried again, and on another stream")
		})
	}
}
