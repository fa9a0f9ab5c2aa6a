package fairqueue_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// campaign is one that leads and others that wait, in order, each with a session of its own.
type campaign struct {
	c       *embedtest.Cluster
	client  *clientv3.Client
	queue   *fairqueue.Queue
	line    []*fairqueue.Ticket
	waiting []<-chan error // [0] is nil
}

func startCampaign(t *testing.T, waiters int) *campaign {
	t.Helper()
	p := &campaign{}
	p.c, p.client = begin(t)
	p.queue = newQueue(t, p.client)
	for i := range waiters + 1 {
		ticket := joinCandidate(t, open(t, p.client), string(rune('a'+i)), 0)
		p.line = append(p.line, ticket)
		if i == 0 {
			require.NoError(t, ticket.Wait(within(t, patience)))
			p.waiting = append(p.waiting, nil)
			continue
		}
		p.waiting = append(p.waiting, standing(t, p.c, ticket))
	}
	return p
}

// joinCandidate joins the queue at q.
func joinCandidate(t testing.TB, s *session.Session, value string, priority int) *fairqueue.Ticket {
	t.Helper()
	return joinN(t, s, 1, candidate(s, value, priority))
}

func candidate(s *session.Session, value string, priority int) fairqueue.Place {
	return fairqueue.Place{Queue: queueAt(s, "q"), Mode: fairqueue.Candidate, Value: value, Priority: priority}
}

func passTo(t testing.TB, ticket *fairqueue.Ticket, chosen func([]fairqueue.Entry) int) error {
	t.Helper()
	_, err := ticket.PassTo(within(t, patience), chosen)
	return err
}

// named chooses by value.
func named(value string) func([]fairqueue.Entry) int {
	return func(behind []fairqueue.Entry) int {
		for i, e := range behind {
			if string(e.Value) == value {
				return i
			}
		}
		return -1
	}
}

// passing fits the transaction of PassTo.
func passing(message any) bool {
	r, ok := message.(*etcdserverpb.TxnRequest)
	return ok && len(r.Compare) > 1 && len(r.Success) > 0 && r.Success[0].GetRequestDeleteRange() != nil
}

// values are what the entries say, in order.
func values(entries []fairqueue.Entry) string {
	all := ""
	for _, e := range entries {
		all += string(e.Value)
	}
	return all
}

// The transaction was applied, and etcd says that there is no space all the same.
func TestPassingThatWasAppliedWithoutSpaceIsDone(t *testing.T) {
	p := startCampaign(t, 2)
	refused := p.c.Refuse("Txn", rpctypes.ErrGRPCNoSpace, embedtest.Once(), embedtest.When(passing))
	require.NoError(t, passTo(t, p.line[0], func(behind []fairqueue.Entry) int {
		remove(t, p.client, p.line[0].Key())
		remove(t, p.client, p.line[1].Key())
		return named("c")(behind)
	}))
	require.Equal(t, 1, refused.Bites())
	requireGranted(t, p.waiting[2])
}

func TestStrangersAreNotPassedOver(t *testing.T) {
	for name, key := range map[string]string{"a ticket of another kind": "q/694d", "one that looks like ours": "q/lock"} {
		t.Run(name, func(t *testing.T) {
			p := startCampaign(t, 1)
			put(t, p.client, key)
			last := joinCandidate(t, open(t, p.client), "z", 0)
			before := storeRevision(t, p.client)
			err := passTo(t, p.line[0], named("z"))
			require.ErrorIs(t, err, fairqueue.ErrForeign)
			require.ErrorContains(t, err, key)
			require.Equal(t, before, storeRevision(t, p.client))
			// It may be passed to, and to those before it.
			require.NoError(t, passTo(t, p.line[0], named("b")))
			requireGranted(t, p.waiting[1])
			require.NoError(t, passTo(t, p.line[1], func([]fairqueue.Entry) int { return 0 }))
			left := entriesOf(t, p.queue)
			require.Equal(t, []string{key, last.Key()}, []string{left[0].Key, left[1].Key})
		})
	}
}

func TestMoreThanATransactionCanCarryAreNotPassedOver(t *testing.T) {
	c, client, q := beginQueue(t)
	leader := hold(t, q, fairqueue.Candidate)
	var puts []clientv3.Op
	for i := range 127 {
		puts = append(puts, clientv3.OpPut(fmt.Sprintf("q/l1-%x", i), ""))
	}
	_, err := client.Txn(within(t, patience)).Then(puts...).Commit()
	require.NoError(t, err)
	chosen := joinCandidate(t, open(t, client), "z", 0)
	before := storeRevision(t, client)
	requireTooMany(t, passTo(t, leader, named("z")), fairqueue.TooManyError{Places: 129, Limit: 128})
	require.Equal(t, before, storeRevision(t, client))
	remove(t, client, "q/l1-0")
	lower := c.Refuse("Txn", rpctypes.ErrGRPCTooManyOps, embedtest.When(passing))
	requireTooMany(t, passTo(t, leader, named("z")), fairqueue.TooManyError{Places: 128})
	require.Equal(t, before+1, storeRevision(t, client))
	lower.Heal()
	require.NoError(t, passTo(t, leader, named("z")))
	require.NoError(t, chosen.Wait(within(t, patience)))
	require.Equal(t, []string{chosen.Key()}, keysUnder(t, client, "q"))
}

func entriesOf(t testing.TB, q *fairqueue.Queue) []fairqueue.Entry {
	t.Helper()
	entries, _, err := q.Entries(within(t, patience))
	require.NoError(t, err)
	return entries
}

// The queue changes between the read and the transaction: one in between goes, or the
// chosen one does.
func TestPassingFollowsTheQueue(t *testing.T) {
	for name, gone := range map[string]int{"one in between": 1, "the chosen one": 2, "the owner": 0} {
		t.Run(name, func(t *testing.T) {
			p := startCampaign(t, 2)
			fault := p.c.Hold("Txn", embedtest.Once(), embedtest.When(passing))
			err := during(t, fault, func() error { return passTo(t, p.line[0], named("c")) }, func() {
				remove(t, p.client, p.line[gone].Key())
			})
			switch gone {
			case 0:
				require.ErrorIs(t, err, fairqueue.ErrGone)
				requireGranted(t, p.waiting[1])
			case 1:
				require.NoError(t, err)
				requireGranted(t, p.waiting[2])
			case 2:
				require.ErrorIs(t, err, fairqueue.ErrNotWaiting)
				require.Equal(t, "ab", values(entriesOf(t, p.queue)))
			}
		})
	}
}

// The first attempt never arrives, and the next one fails since the queue has changed meanwhile.
func TestPassingThatWasNeverAppliedIsNotTakenForDone(t *testing.T) {
	p := startCampaign(t, 2)
	fault := p.c.LoseRequest("Txn", embedtest.Once(), embedtest.When(passing))
	err := during(t, fault, func() error { return passTo(t, p.line[0], named("c")) }, func() {
		remove(t, p.client, p.line[2].Key())
		remove(t, p.client, p.line[0].Key())
	})
	require.ErrorIs(t, err, fairqueue.ErrGone)
	requireGranted(t, p.waiting[1])
	require.Equal(t, "b", values(entriesOf(t, p.queue)))
}

// The first attempt never arrives, the second is refused, and then the ticket is lost.
func TestPassingThatWasRefusedAfterADoubtIsNotTakenForDone(t *testing.T) {
	p := startCampaign(t, 1)
	later := joinCandidate(t, open(t, p.client), "c", 0)
	fault := p.c.LoseRequest("Txn", embedtest.Once(), embedtest.When(passing))
	rounds := 0
	err := during(t, fault, func() error {
		return passTo(t, p.line[0], func(behind []fairqueue.Entry) int {
			if rounds++; rounds == 2 { // the one in between is gone, and nobody is left to be passed over
				remove(t, p.client, p.line[0].Key())
			}
			return len(behind) - 1
		})
	}, func() { remove(t, p.client, p.line[1].Key()) })
	require.ErrorIs(t, err, fairqueue.ErrGone)
	require.Equal(t, later.Revision(), revisionOf(t, p.client, later.Key()))
}

func TestEntriesTellValuesAndPrioritiesOfCandidates(t *testing.T) {
	_, client := begin(t)
	s := open(t, client)
	q := queueAt(s, "q")
	first := joinCandidate(t, s, `{"mark":"shared",`, 1<<40)
	reader := join(t, q, fairqueue.Shared)
	require.False(t, reader.Granted(), "a value of the caller's is no mark")
	leave(t, reader)
	joinCandidate(t, s, "", 0)
	entries := entriesOf(t, q)
	require.Equal(t, 1<<40, entries[0].Priority)
	require.Equal(t, fairqueue.Candidate, entries[0].Mode)
	require.Zero(t, entries[0].Owner)
	require.Zero(t, entries[1].Priority)
	require.Empty(t, entries[1].Value)
	require.NoError(t, first.Set(within(t, patience), "new"))
	require.Equal(t, "new", string(entriesOf(t, q)[0].Value))
	require.Equal(t, first.Revision(), entriesOf(t, q)[0].Revision)
	require.Panics(t, func() { joinCandidate(t, s, "", -1) })
}
