package fairqueue_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// inAMoment runs a test during which no time passes but what it waits for on purpose: what is expected
// of a queue is forgotten after a second, however slow the machine is.
func inAMoment(t *testing.T, test func(t *testing.T, c *embedtest.Cluster, opened func() *session.Session)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := embedtest.Start(t, embedtest.WithVirtualTime())
		start := time.Now()
		clock := session.WithClock(func() time.Duration { return time.Since(start) })
		test(t, c, func() *session.Session { return open(t, c.Client(t), session.WithTTL(never), clock) })
	})
}

// calm are queues of one session in each of which somebody has met nobody else.
func calm(t *testing.T, s *session.Session, n int) (queues []*fairqueue.Queue) {
	for i := range n {
		queues = append(queues, fairqueue.New(s, fmt.Sprintf("q%d", i)))
		leave(t, join(t, queues[i], fairqueue.Exclusive))
	}
	return queues
}

// creatingMany fits the requests in which several tickets are created that have gone out together.
func creatingMany(message any) bool {
	r, ok := message.(*etcdserverpb.TxnRequest)
	return ok && creating(message) && len(r.Compare) > 2
}

// joinEach has somebody join each of the queues, all at once.
func joinEach(t *testing.T, c *embedtest.Cluster, queues []*fairqueue.Queue) []*fairqueue.Ticket {
	ctx := within(t, patience)
	tickets := make([]*fairqueue.Ticket, len(queues))
	crowd(t, c, len(queues), func(i int) (err error) {
		tickets[i], err = queues[i].Join(ctx, fairqueue.Exclusive)
		return err
	})
	return tickets
}

func ranges(message any) (n int64) {
	for _, op := range message.(*etcdserverpb.TxnRequest).Success {
		if op.GetRequestRange() != nil {
			n++
		}
	}
	return n
}

func TestWhereNobodyWasThereIsNothingToRead(t *testing.T) {
	inAMoment(t, func(t *testing.T, c *embedtest.Cluster, opened func() *session.Session) {
		const n = 100
		queues := calm(t, opened(), n)
		ctx := within(t, patience)
		var created, read atomic.Int64
		c.Refuse("Txn", nil, embedtest.When(func(message any) bool { // which is never done
			if creatingMany(message) {
				created.Add(int64(len(message.(*etcdserverpb.TxnRequest).Compare)))
				read.Add(ranges(message))
			}
			return false
		}))
		tickets := joinEach(t, c, queues)
		require.Positive(t, created.Load())
		require.Zero(t, read.Load())
		for i, ticket := range tickets {
			require.True(t, ticket.Granted())
			require.NoError(t, ticket.Wait(ctx))
			answer, err := c.Client(t).Get(ctx, fmt.Sprintf("q%d/", i), clientv3.WithPrefix())
			require.NoError(t, err)
			require.Len(t, answer.Kvs, 1)
			require.Equal(t, ticket.Revision(), answer.Kvs[0].CreateRevision)
		}
	})
}

func TestWhoMeetsSomebodyAgainstExpectationWaits(t *testing.T) {
	inAMoment(t, func(t *testing.T, c *embedtest.Cluster, opened func() *session.Session) {
		const n, taken = 40, 5
		queues := calm(t, opened(), n)
		var others []*fairqueue.Ticket
		for i := range taken {
			others = append(others, hold(t, fairqueue.New(opened(), fmt.Sprintf("q%d", i)), fairqueue.Exclusive))
		}
		ctx := within(t, patience)
		tickets := joinEach(t, c, queues)
		for i, ticket := range tickets {
			require.Equal(t, i >= taken, ticket.Granted())
			if i < taken {
				require.Greater(t, ticket.Revision(), others[i].Revision())
				leave(t, others[i])
			}
			require.NoError(t, ticket.Wait(ctx))
		}
	})
}

// Whatever kind of key is in the way where nobody was, a shortcut does not overlook it.
func TestAShortcutOverlooksNobody(t *testing.T) {
	inAMoment(t, func(t *testing.T, c *embedtest.Cluster, opened func() *session.Session) {
		const n = 20
		client := c.Client(t)
		ctx := within(t, patience)
		other := opened()
		of := func(prefix string) *fairqueue.Queue { return fairqueue.New(other, prefix) }
		kinds := map[string]struct {
			come    func(prefix string)
			granted bool // all the same
		}{
			"an exclusive one": {func(p string) { hold(t, of(p), fairqueue.Exclusive) }, false},
			"a shared one":     {func(p string) { hold(t, of(p), fairqueue.Shared) }, false},
			"a candidate":      {func(p string) { hold(t, of(p), fairqueue.Candidate) }, false},
			"a permit":         {func(p string) { holdPermits(t, of(p), 1, 3) }, false},
			"one that lingers": {func(p string) {
				require.NoError(t, hold(t, of(p), fairqueue.Exclusive).Linger(ctx, never))
			}, false},
			"a foreign key":   {func(p string) { put(t, client, p+"/123abc") }, false},
			"the first key":   {func(p string) { put(t, client, p+"/") }, false},
			"the last key":    {func(p string) { put(t, client, p+"/\xff\xff") }, false},
			"another queue's": {func(p string) { put(t, client, p+"/below/x1-0") }, true},
			"one beside it":   {func(p string) { put(t, client, p+"0") }, true},
		}
		for name, kind := range kinds {
			for _, mode := range []fairqueue.Mode{fairqueue.Exclusive, fairqueue.Candidate} {
				s := opened()
				queues := make([]*fairqueue.Queue, n)
				for i := range queues {
					// By way of At, which must not look where the first one is.
					queues[i] = fairqueue.New(s, "elsewhere").At(fmt.Sprintf("%s, %v, %d", name, mode, i))
					leave(t, join(t, queues[i], mode))
				}
				kind.come(fmt.Sprintf("%s, %v, %d", name, mode, 7))
				crowd(t, c, n, func(i int) error {
					ticket, err := queues[i].Join(ctx, mode)
					if err == nil && ticket.Granted() != (i != 7 || kind.granted) {
						err = fmt.Errorf("%s, %v, %d: %v", name, mode, i, ticket.Granted())
					}
					return err
				})
			}
		}
	})
}

// R1, for what went out together and in short.
func TestTheAnswerToAShortcutIsLost(t *testing.T) {
	inAMoment(t, func(t *testing.T, c *embedtest.Cluster, opened func() *session.Session) {
		const n = 40
		queues := calm(t, opened(), n)
		ctx := within(t, patience)
		lost := c.LoseReply("Txn", embedtest.Once(), embedtest.When(creatingMany))
		tickets := joinEach(t, c, queues)
		require.Equal(t, 1, lost.Bites())
		for i, ticket := range tickets {
			require.NoError(t, ticket.Wait(ctx))
			entries, err := queues[i].Entries(ctx)
			require.NoError(t, err)
			require.Len(t, entries, 1)
			require.Equal(t, ticket.Revision(), entries[0].Revision)
			leave(t, ticket)
		}
	})
}
