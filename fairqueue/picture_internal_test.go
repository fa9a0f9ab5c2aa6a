package fairqueue

import (
	"context"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// gallery is a queue of others and, behind them, of tickets of one session, whose lease is 1. Each came one
// revision after the one ahead of it, and the past ends with the last.
func gallery(t *testing.T, others, mine int) (i *inquiry, tickets []*Ticket) {
	i = newInquiry(t)
	s := i.queue.source.(*session.Session)
	keys := map[string]birth{}
	for n := range others + mine {
		lease := clientv3.LeaseID(2 + n)
		if n >= others {
			lease = s.Lease()
		}
		me := entry{key: i.queue.space.key(Exclusive, lease, n, 0), revision: int64(2 + n)}
		keys[me.key] = birth{revision: me.revision}
		if n >= others {
			tickets = append(tickets, &Ticket{queue: i.queue, session: s, mode: Exclusive, me: me})
		}
	}
	i.kv.past = make(past, 2+others+mine)
	i.kv.past[i.kv.past.latest()] = keys
	i.kv.behind = i.kv.past.latest()
	return i, tickets
}

// without goes on to a revision at which some have gone.
func (i *inquiry) without(gone ...*Ticket) {
	keys := maps.Clone(i.kv.past[i.kv.past.latest()])
	for _, ticket := range gone {
		delete(keys, ticket.me.key)
	}
	i.kv.past = append(i.kv.past, keys)
}

func TestAPictureBeginsALittleAheadOfThoseWhoAreShownIt(t *testing.T) {
	i, tickets := gallery(t, 500, 10)
	p, err := i.queue.everybody(context.Background(), tickets[0].session, tickets[7].me, 3)
	require.NoError(t, err)
	require.EqualValues(t, 510, p.length)
	require.Len(t, p.entries, nearLimit+3)
	for n, ticket := range tickets {
		ticket.learn(p.near(ticket.me, nearLimit), ticket.me.revision)
		require.Equal(t, blocked, ticket.verdict)
		require.Equal(t, ticket.me.revision-1, ticket.nearest.revision, n)
	}
	early, err := i.queue.everybody(context.Background(), tickets[0].session, tickets[2].me, 1)
	require.NoError(t, err)
	require.Len(t, early.entries, nearLimit+8, "from one who asks long after it joined")
	ahead := &Ticket{queue: i.queue, mode: Exclusive, me: p.entries[0]}
	ahead.learn(p.near(ahead.me, nearLimit), ahead.me.revision)
	require.Equal(t, askFurther, ahead.verdict, "who is ahead of it is not shown")
	ahead.me.revision -= 100
	ahead.learn(p.near(ahead.me, nearLimit), ahead.me.revision)
	require.Equal(t, askFurther, ahead.verdict, "it is not shown itself")
}

func TestWhoIsKnownToHaveOwnedIsAllThereIsAhead(t *testing.T) {
	i, tickets := gallery(t, 500, 4)
	p, err := i.queue.everybody(context.Background(), tickets[0].session, tickets[0].me, len(tickets))
	require.NoError(t, err)
	p.owned.Store(tickets[1].me.revision)
	for n, want := range map[int]int{1: nearLimit + 1, 2: 2, 3: 3} {
		near := p.near(tickets[n].me, nearLimit)
		require.Len(t, near.entries, want)
		require.Equal(t, n < 2, near.from > 0, "for itself it says nothing")
	}
}

// Promise 1: b is removed, c behind it owns, and then b hears of something from before that.
func TestOneBehindThatHasOwnedSaysNothing(t *testing.T) {
	i, tickets := gallery(t, 3, 2)
	b, c := tickets[0], tickets[1]
	p, err := i.queue.everybody(context.Background(), b.session, b.me, 2)
	require.NoError(t, err)
	p.owned.Store(c.me.revision)

	b.learn(p.near(b.me, nearLimit), b.me.revision) // a first look that comes late
	require.Equal(t, blocked, b.verdict)

	b.picture = p
	i.without(b) // unknown to the member that is asked
	require.True(t, b.recall(context.Background(), b.me.revision, nearLimit))
	require.Equal(t, blocked, b.verdict)
	i.kv.behind = i.kv.past.latest()
	require.True(t, b.recall(context.Background(), b.me.revision, nearLimit))
	require.Equal(t, gone, b.verdict)
}

// A hold may last for days, and the queue be long.
func TestNobodyKeepsThePictureOfTheQueue(t *testing.T) {
	i, tickets := gallery(t, 0, 70)
	first := tickets[0]
	p, err := i.queue.everybody(context.Background(), first.session, first.me, len(tickets))
	require.NoError(t, err)
	first.picture, first.verdict = p, granted
	require.NoError(t, first.wait(context.Background()))
	require.Nil(t, first.picture)
	require.Equal(t, first.me.revision, p.owned.Load())
}
