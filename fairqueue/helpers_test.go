package fairqueue_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

const (
	// patience bounds what must happen soon; no test depends on how soon.
	patience = 20 * time.Second
	// never is a time that no test lasts: what is to happen must happen without.
	never = time.Hour
	// brief is for contexts that end during a call.
	brief = 300 * time.Millisecond
)

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// open returns a session that lasts for the test, and is not renewed meanwhile, unless told otherwise.
func open(t testing.TB, client *clientv3.Client, opts ...session.Option) *session.Session {
	t.Helper()
	s, err := session.New(within(t, patience), client, append([]session.Option{session.WithTTL(never)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		// Not within: that has ended by now. A server that is gone is no fault.
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s
}

// revoke ends a lease behind the back of its session.
func revoke(t testing.TB, client *clientv3.Client, s *session.Session) {
	t.Helper()
	_, err := client.Revoke(within(t, patience), s.Lease())
	require.NoError(t, err)
}

func join(t testing.TB, q *fairqueue.Queue, m fairqueue.Mode) *fairqueue.Ticket {
	t.Helper()
	ticket, err := q.Join(within(t, patience), m)
	require.NoError(t, err)
	return ticket
}

// hold joins a queue in which nothing is in the way.
func hold(t testing.TB, q *fairqueue.Queue, m fairqueue.Mode) *fairqueue.Ticket {
	t.Helper()
	ticket := join(t, q, m)
	require.NoError(t, ticket.Wait(within(t, patience)))
	return ticket
}

func leave(t testing.TB, ticket *fairqueue.Ticket) {
	t.Helper()
	require.NoError(t, ticket.Leave(within(t, patience)))
}

// wait waits in the background, until the end of the test at most.
func wait(t testing.TB, ctx context.Context, ticket *fairqueue.Ticket) <-chan error {
	ctx, stop := context.WithCancel(ctx)
	waiting := background(t, func() error { return ticket.Wait(ctx) })
	t.Cleanup(stop)
	return waiting
}

// background runs f, and the test does not end before f does.
func background(t testing.TB, f func() error) <-chan error {
	result := make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() { result <- f() })
	t.Cleanup(running.Wait)
	return result
}

// during returns the result of a call that fault bites. Meanwhile runs after the bite, and before the fault is healed.
func during(t testing.TB, fault *embedtest.Fault, call func() error, meanwhile func()) error {
	t.Helper()
	called := background(t, call)
	require.NoError(t, fault.Wait(within(t, patience)))
	meanwhile()
	fault.Heal()
	return result(t, called)
}

func nothing() {}

// givesUp makes a call, and ends its context when fault has bitten it.
func givesUp(t testing.TB, fault *embedtest.Fault, call func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t, patience))
	given := background(t, func() error { return call(ctx) })
	require.NoError(t, fault.Wait(within(t, patience)))
	cancel()
	require.ErrorIs(t, result(t, given), context.Canceled)
}

// errorOf is the error of a call that takes a ticket.
func errorOf(_ *fairqueue.Ticket, err error) error { return err }

func result(t testing.TB, of <-chan error) error {
	t.Helper()
	select {
	case err := <-of:
		return err
	case <-time.After(patience):
		require.Fail(t, "still waiting")
		return nil
	}
}

func requireGranted(t testing.TB, of <-chan error) {
	t.Helper()
	require.NoError(t, result(t, of))
}

// requireWaiting is for waiters that are known to wait by other means. It requires that nothing has
// changed so far.
func requireWaiting(t testing.TB, of <-chan error) {
	t.Helper()
	select {
	case err := <-of:
		require.Fail(t, "not waiting any more", "%v", err)
	default:
	}
}

// eventually is for what gives no signal.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(patience)
	for !f() {
		select {
		case <-ticker.C:
		case <-deadline:
			require.Fail(t, "never: "+what)
		}
	}
}

func put(t testing.TB, client *clientv3.Client, key string) {
	t.Helper()
	set(t, client, key, "")
}

func set(t testing.TB, client *clientv3.Client, key, value string) {
	t.Helper()
	_, err := client.Put(within(t, patience), key, value)
	require.NoError(t, err)
}

// putMany puts more keys under a prefix than a join or a short look brings back.
func putMany(t testing.TB, client *clientv3.Client, prefix string) {
	t.Helper()
	var puts []clientv3.Op
	for i := range 120 {
		puts = append(puts, clientv3.OpPut(fmt.Sprintf("%s/%d", prefix, i), ""))
	}
	_, err := client.Txn(within(t, patience)).Then(puts...).Commit()
	require.NoError(t, err)
}

func remove(t testing.TB, client *clientv3.Client, key string) {
	t.Helper()
	answer, err := client.Delete(within(t, patience), key)
	require.NoError(t, err)
	require.EqualValues(t, 1, answer.Deleted)
}

// revisionOf returns the create revision of a key, 0 if there is none.
func revisionOf(t testing.TB, client *clientv3.Client, key string) int64 {
	t.Helper()
	answer, err := client.Get(within(t, patience), key)
	require.NoError(t, err)
	if len(answer.Kvs) == 0 {
		return 0
	}
	return answer.Kvs[0].CreateRevision
}

// keysUnder lists the keys below a prefix, without those of epochs.
func keysUnder(t testing.TB, client *clientv3.Client, prefix string) []string {
	t.Helper()
	answer, err := client.Get(within(t, patience), prefix+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	keys := []string{}
	for _, kv := range answer.Kvs {
		if !isEpoch(kv.Key) {
			keys = append(keys, string(kv.Key))
		}
	}
	return keys
}

func eventuallyEmpty(t testing.TB, client *clientv3.Client, prefix string) {
	t.Helper()
	eventually(t, prefix+" is empty", func() bool { return len(keysUnder(t, client, prefix)) == 0 })
}

// spy counts messages as they pass through a member, and touches none.
type spy struct{ count atomic.Int64 }

func (s *spy) seen() int { return int(s.count.Load()) }

// counting lets a fault count the messages as each says, and touch none.
func (s *spy) counting(count func(message any) int) embedtest.FaultOption {
	return embedtest.When(func(message any) bool {
		s.count.Add(int64(count(message)))
		return false
	})
}

// spyOnRequests counts the requests of a method that fit.
func spyOnRequests(c *embedtest.Cluster, method string, fits func(any) bool, opts ...embedtest.FaultOption) *spy {
	s := &spy{}
	c.LoseRequest(method, append(opts, s.counting(func(message any) int {
		if fits(message) {
			return 1
		}
		return 0
	}))...)
	return s
}

// spyOnWatches counts the notices of watches that have been created.
func spyOnWatches(c *embedtest.Cluster, opts ...embedtest.FaultOption) *spy {
	s := &spy{}
	c.LoseReply("Watch", append(opts, s.counting(func(message any) int {
		if answer := message.(*etcdserverpb.WatchResponse); answer.Created && !answer.Canceled {
			return 1
		}
		return 0
	}))...)
	return s
}

// spyOnEvents counts the events that watches deliver.
func spyOnEvents(c *embedtest.Cluster) *spy {
	s := &spy{}
	c.LoseReply("Watch", s.counting(func(message any) int { return len(message.(*etcdserverpb.WatchResponse).Events) }))
	return s
}

// await waits until n messages have passed.
func (s *spy) await(t testing.TB, n int) {
	t.Helper()
	eventually(t, "enough messages", func() bool { return s.seen() >= n })
}

// creating fits the transactions that create a ticket.
func creating(message any) bool {
	r, ok := message.(*etcdserverpb.TxnRequest)
	return ok && len(r.Success) > 0 && r.Success[0].GetRequestPut() != nil && !isEpoch(r.Success[0].GetRequestPut().Key)
}

// isEpoch tells the key that ends the doubt about unanswered requests from tickets.
func isEpoch(key []byte) bool { return bytes.Contains(key, []byte("!/epoch/")) }

// awaitNewEpoch waits until an epoch of s has begun, so that no request sent before can take effect.
func awaitNewEpoch(t testing.TB, client *clientv3.Client, s *session.Session) {
	t.Helper()
	key := fmt.Sprintf("!/epoch/%x", s.Lease())
	eventually(t, "an epoch has begun", func() bool { return revisionOf(t, client, key) > 0 })
}

// requireNoGhost applies the requests that held keeps, and requires that they create nothing in the queue, not even for
// a moment.
func requireNoGhost(t *testing.T, c *embedtest.Cluster, held *embedtest.Fault, client *clientv3.Client) {
	t.Helper()
	const end = "q/z-the-end"
	before := storeRevision(t, client)
	arrive(t, c, held)
	put(t, client, end)
	remove(t, client, end)
	for response := range client.Watch(within(t, patience), "q/", clientv3.WithPrefix(), clientv3.WithRev(before+1)) {
		require.NoError(t, response.Err())
		for _, event := range response.Events {
			if string(event.Kv.Key) == end {
				return
			}
			require.False(t, event.IsCreate(), "a ghost: %s", event.Kv.Key)
		}
	}
	require.Fail(t, "the watch ended")
}

// leaving fits the transactions that delete a ticket.
func leaving(message any) bool {
	r, ok := message.(*etcdserverpb.TxnRequest)
	return ok && len(r.Success) == 1 && r.Success[0].GetRequestDeleteRange() != nil
}

// looking fits the reads with which the session looks after keys that may come late.
func looking(message any) bool {
	r, ok := message.(*etcdserverpb.TxnRequest)
	return ok && len(r.Compare) == 0 && len(r.Success) > 0 && r.Success[0].GetRequestRange() != nil
}

// begin starts a cluster for a test that runs in parallel with others.
func begin(t *testing.T, opts ...embedtest.Option) (*embedtest.Cluster, *clientv3.Client) {
	t.Helper()
	t.Parallel()
	c := embedtest.Start(t, opts...)
	return c, c.Client(t)
}

// standing waits in the background, and returns when the ticket's watch stands.
func standing(t testing.TB, c *embedtest.Cluster, ticket *fairqueue.Ticket) <-chan error {
	t.Helper()
	return standingUntil(t, within(t, patience), c, ticket)
}

func standingUntil(t testing.TB, ctx context.Context, c *embedtest.Cluster, ticket *fairqueue.Ticket) <-chan error {
	t.Helper()
	watches := spyOnWatches(c)
	waiting := wait(t, ctx, ticket)
	watches.await(t, 1)
	return waiting
}

// arrive lets a request arrive that a fault has held, and waits until it is applied.
func arrive(t testing.TB, c *embedtest.Cluster, held *embedtest.Fault) {
	t.Helper()
	before := c.AppliedIndex()
	held.Heal()
	eventually(t, "the late request is applied", func() bool { return c.AppliedIndex() > before })
}

func try(t testing.TB, q *fairqueue.Queue, m fairqueue.Mode) *fairqueue.Ticket {
	t.Helper()
	ticket, err := q.TryJoin(within(t, patience), m)
	require.NoError(t, err)
	return ticket
}

func requireBusy(t testing.TB, q *fairqueue.Queue, m fairqueue.Mode) {
	t.Helper()
	_, err := q.TryJoin(within(t, patience), m)
	require.ErrorIs(t, err, fairqueue.ErrBusy)
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// queueAt returns a queue whose waiters look only after events.
func queueAt(s session.Source, prefix string) *fairqueue.Queue {
	return fairqueue.New(s, prefix, fairqueue.Options{Recheck: never})
}

// newQueue is the queue at q with a session of its own.
func newQueue(t testing.TB, client *clientv3.Client) *fairqueue.Queue {
	t.Helper()
	return queueAt(open(t, client), "q")
}

func beginQueue(t *testing.T) (*embedtest.Cluster, *clientv3.Client, *fairqueue.Queue) {
	t.Helper()
	c, client := begin(t)
	return c, client, newQueue(t, client)
}
