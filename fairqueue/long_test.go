package fairqueue_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
)

// line is a long queue: an owner of theirs, some tickets behind it, and then two of mine that wait.
type line struct {
	c            *embedtest.Cluster
	client       *clientv3.Client
	mine, theirs *fairqueue.Queue
	ahead        []*fairqueue.Ticket
	first, next  *fairqueue.Ticket
}

func newLine(t *testing.T, mode fairqueue.Mode) *line {
	l := &line{}
	l.c, l.client = begin(t)
	l.theirs = newQueue(t, l.client)
	l.mine = newQueue(t, l.client)
	l.ahead = joinMany(t, l.theirs, 70) // more than a join tells of
	l.first, l.next = join(t, l.mine, mode), join(t, l.mine, mode)
	joinMany(t, l.theirs, 512)
	return l
}

func joinMany(t *testing.T, q *fairqueue.Queue, n int) (tickets []*fairqueue.Ticket) {
	for range n {
		tickets = append(tickets, join(t, q, fairqueue.Exclusive))
	}
	return tickets
}

// owns makes the first of mine the owner.
func (l *line) owns(t *testing.T) {
	granted := standing(t, l.c, l.first)
	for _, ticket := range l.ahead {
		leave(t, ticket)
	}
	requireGranted(t, granted)
}

// entry returns what the queue says of a ticket, which may be gone.
func (l *line) entry(t *testing.T, ticket *fairqueue.Ticket) (found fairqueue.Entry) {
	for _, e := range entriesOf(t, l.theirs) {
		if e.Key == ticket.Key() {
			found = e
		}
	}
	return found
}

func (l *line) says(t *testing.T, ticket *fairqueue.Ticket, length int) {
	require.Equal(t, fmt.Sprintf("owner %d at %d", length, ticket.Revision()), l.entry(t, ticket).Owner.Mark)
}

// marking fits the transaction that marks an owner.
func marking(message any) bool {
	r := message.(*etcdserverpb.TxnRequest)
	return len(r.Success) == 1 && strings.HasPrefix(string(r.Success[0].GetRequestPut().GetValue()), `{"mark":"owner`)
}

func TestTheSuccessorOfAnOwnerInALongQueueDoesNotLookAtAll(t *testing.T) {
	l := newLine(t, fairqueue.Exclusive)
	granted := standing(t, l.c, l.next)
	l.owns(t)
	l.says(t, l.first, 514)
	host := l.entry(t, l.first).Owner.Host
	require.Equal(t, l.entry(t, l.next).Owner.Host, host, "the rest of the value stays")
	reads, entries := l.c.Calls("Range"), l.c.AppliedIndex()
	leave(t, l.first)
	requireGranted(t, granted)
	require.Equal(t, reads, l.c.Calls("Range"))
	require.EqualValues(t, 2, l.c.AppliedIndex()-entries, "the leave, and the mark, which tells that it is there")
	l.says(t, l.next, 513)
}

// Here alone a waiter does not look at the queue before it owns.
func TestARemovedWaiterDoesNotSucceedAnOwner(t *testing.T) {
	tests := map[string]func(l *line) []clientv3.Op{
		"before": func(l *line) []clientv3.Op { return []clientv3.Op{clientv3.OpDelete(l.next.Key())} },
		"in one transaction": func(l *line) []clientv3.Op {
			return []clientv3.Op{clientv3.OpDelete(l.first.Key()), clientv3.OpDelete(l.next.Key())}
		},
	}
	for name, removes := range tests {
		t.Run(name, func(t *testing.T) {
			l := newLine(t, fairqueue.Exclusive)
			granted := standing(t, l.c, l.next)
			l.owns(t)
			l.says(t, l.first, 514)
			_, err := l.client.Txn(within(t, patience)).Then(removes(l)...).Commit()
			require.NoError(t, err)
			_ = l.first.Leave(within(t, patience))
			require.ErrorIs(t, result(t, granted), fairqueue.ErrGone)
		})
	}
}

// The mark comes late, when the owner has gone on.
func TestALateMarkChangesNothingElse(t *testing.T) {
	tests := map[string]func(t *testing.T, l *line) *fairqueue.Ticket{
		"share": func(t *testing.T, l *line) *fairqueue.Ticket {
			require.NoError(t, l.first.Share(within(t, patience)))
			return l.first
		},
		"release later": func(t *testing.T, l *line) *fairqueue.Ticket {
			require.NoError(t, l.first.ReleaseAfter(within(t, patience), never))
			return l.first
		},
		"leave and join": func(t *testing.T, l *line) *fairqueue.Ticket {
			leave(t, l.first)
			return join(t, l.mine, fairqueue.Exclusive)
		},
		"leave": func(t *testing.T, l *line) *fairqueue.Ticket {
			leave(t, l.first)
			return l.first
		},
	}
	for name, goOn := range tests {
		t.Run(name, func(t *testing.T) {
			l := newLine(t, fairqueue.Exclusive)
			held := l.c.Hold("Txn", embedtest.When(marking), embedtest.Times(1))
			l.owns(t) // after a while, without an answer
			require.NoError(t, held.Wait(within(t, patience)))
			ticket := goOn(t, l)
			before := l.entry(t, ticket)
			entries := l.c.AppliedIndex()
			held.Heal()
			eventually(t, "the mark has come", func() bool { return l.c.AppliedIndex() > entries })
			require.Equal(t, before, l.entry(t, ticket))
		})
	}
}

func TestAnOwnerThatIsMarkedSharesInOneRoundTrip(t *testing.T) {
	l := newLine(t, fairqueue.Exclusive)
	l.owns(t)
	entries, requests := l.c.AppliedIndex(), l.c.Calls("Txn")
	require.NoError(t, l.first.Share(within(t, patience)))
	require.EqualValues(t, 1, l.c.AppliedIndex()-entries)
	require.EqualValues(t, 1, l.c.Calls("Txn")-requests)
	require.Equal(t, "shared", l.entry(t, l.first).Owner.Mark)
}

// What cannot be marked is granted all the same.
func TestWithoutAMarkTheSuccessorLooks(t *testing.T) {
	of := func(ticket *fairqueue.Ticket) embedtest.FaultOption {
		return embedtest.When(func(message any) bool {
			return marking(message) && string(message.(*etcdserverpb.TxnRequest).Compare[0].Key) == ticket.Key()
		})
	}
	tests := map[string]func(l *line){
		"the owner's is refused":     func(l *line) { l.c.Refuse("Txn", rpctypes.ErrGRPCNoSpace, of(l.first)) },
		"the successor's is refused": func(l *line) { l.c.Refuse("Txn", rpctypes.ErrGRPCNoSpace, of(l.next)) },
		"no answer ever comes":       func(l *line) { l.c.LoseReply("Txn", embedtest.When(marking)) },
		"no request ever arrives":    func(l *line) { l.c.LoseRequest("Txn", embedtest.When(marking)) },
		"one answer is lost":         func(l *line) { l.c.LoseReply("Txn", embedtest.Once(), of(l.next)) },
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			l := newLine(t, fairqueue.Exclusive)
			granted := standing(t, l.c, l.next)
			spoil(l)
			l.owns(t)
			leave(t, l.first)
			requireGranted(t, granted)
		})
	}
}

// A session does not ask what it knows: that it has many tickets in the queue.
func TestAJoinBehindManyOfItsSessionReadsNothing(t *testing.T) {
	c, client := begin(t)
	q := newQueue(t, client)
	reading := spyOnRequests(c, "Txn", func(message any) bool {
		return creating(message) && len(message.(*etcdserverpb.TxnRequest).Success) > 1
	})
	joinMany(t, q, 64)
	require.Equal(t, 64, reading.seen())
	last := join(t, q, fairqueue.Exclusive)
	require.Equal(t, 64, reading.seen())
	require.False(t, last.Granted())
	requireBusy(t, q, fairqueue.Exclusive)
}

// Only exclusive tickets say that they own: a candidate's value is the caller's.
func TestCandidatesInALongQueueKeepTheirValues(t *testing.T) {
	l := newLine(t, fairqueue.Candidate)
	granted := standing(t, l.c, l.next)
	l.owns(t)
	entries := l.c.AppliedIndex()
	leave(t, l.first)
	requireGranted(t, granted)
	require.EqualValues(t, 1, l.c.AppliedIndex()-entries)
}
