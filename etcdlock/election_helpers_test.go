package etcdlock_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const (
	controllerPrefix = "etcdlock/controller/"

	// secondTTL is for sessions that are to be lost during the test.
	secondTTL = time.Second
)

// candidate returns an election with a session of its own.
func candidate(t *testing.T, cluster *embedtest.Cluster, opts ...etcdlock.Option) *etcdlock.Election {
	t.Helper()
	return etcdlock.NewElection(newSession(t, cluster.Client(t)), "controller", opts...)
}

// keep returns a keeper that is closed at the end.
func keep(t *testing.T, c *clientv3.Client, opts ...session.Option) *session.Keeper {
	t.Helper()
	k := session.Keep(c, append([]session.Option{session.WithTTL(longTTL)}, opts...)...)
	t.Cleanup(func() { _ = k.Close(cancelled()) }) // many a test leaves etcd out of reach
	return k
}

// lead campaigns where nobody is in the way.
func lead(t *testing.T, e *etcdlock.Election, value string) *etcdlock.Term {
	t.Helper()
	term, err := e.Campaign(within(t), value)
	require.NoError(t, err)
	return term
}

type campaigned struct {
	term *etcdlock.Term
	err  error
}

// campaigning campaigns in the background and delivers what came of it.
func campaigning(ctx context.Context, e *etcdlock.Election, value string) <-chan campaigned {
	c := make(chan campaigned, 1)
	go func() {
		term, err := e.Campaign(ctx, value)
		c <- campaigned{term, err}
	}()
	return c
}

// inLine campaigns in the background and returns when it is the n-th in line.
func inLine(t *testing.T, c *clientv3.Client, e *etcdlock.Election, value string, n int) <-chan campaigned {
	t.Helper()
	campaign := campaigning(within(t), e, value)
	awaitTickets(t, c, n)
	return campaign
}

// awaitTerm waits until a campaign has been won.
func awaitTerm(t *testing.T, what string, c <-chan campaigned) *etcdlock.Term {
	t.Helper()
	r := await(t, what, c)
	require.NoError(t, r.err, what)
	return r.term
}

func resign(t *testing.T, term *etcdlock.Term) {
	t.Helper()
	require.NoError(t, term.Resign(within(t)))
}

// stillWaiting requires that nothing has come of a campaign.
func stillWaiting(t *testing.T, c <-chan campaigned) {
	t.Helper()
	select {
	case r := <-c:
		require.FailNow(t, "does not wait any more", "%+v", r)
	default:
	}
}

// valuesInLine returns the values of the leader and of those who wait.
func valuesInLine(t *testing.T, c *clientv3.Client) []string {
	t.Helper()
	answer, err := c.Get(within(t), controllerPrefix, clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	require.NoError(t, err)
	values := []string{}
	for _, kv := range answer.Kvs {
		values = append(values, string(kv.Value))
	}
	return values
}

// awaitLine waits until the values of leader and candidates are these.
func awaitLine(t *testing.T, c *clientv3.Client, values ...string) {
	t.Helper()
	require.Eventually(t, func() bool { return slices.Equal(valuesInLine(t, c), values) }, patience, 5*time.Millisecond)
}

// keyOf returns the key of the candidate with that value.
func keyOf(t *testing.T, c *clientv3.Client, value string) string {
	t.Helper()
	answer, err := c.Get(within(t), controllerPrefix, clientv3.WithPrefix())
	require.NoError(t, err)
	for _, kv := range answer.Kvs {
		if string(kv.Value) == value {
			return string(kv.Key)
		}
	}
	require.FailNow(t, "nobody is called "+value)
	return ""
}

// remove deletes a key as a stranger would.
func remove(t *testing.T, c *clientv3.Client, key string) {
	t.Helper()
	answer, err := c.Delete(within(t), key)
	require.NoError(t, err)
	require.EqualValues(t, 1, answer.Deleted)
}

// revoke ends the lease of a session without its knowledge.
func revoke(t *testing.T, c *clientv3.Client, s *session.Session) {
	t.Helper()
	_, err := c.Revoke(within(t), s.Lease())
	require.NoError(t, err)
}

// retires tells the transaction of a resignation or a transfer from others.
func retires(message any) bool {
	writes := message.(*etcdserverpb.TxnRequest).GetSuccess()
	return len(writes) > 0 && writes[0].GetRequestDeleteRange() != nil
}

// loseOneReply loses the answer to one transaction that fits, until it has been applied and
// then has happened.
func loseOneReply(t *testing.T, cluster *embedtest.Cluster, fits func(any) bool, then func()) {
	t.Helper()
	fault := cluster.LoseReply("Txn", embedtest.Once(), embedtest.When(fits))
	ctx := within(t)
	go func() {
		defer fault.Heal() // the client hears that there is no answer, and asks again
		if fault.Wait(ctx) == nil && then != nil {
			then()
		}
	}()
	t.Cleanup(func() { require.Equal(t, 1, fault.Bites()) })
}

// history is what really happened to an election, according to etcd.
type history struct {
	events clientv3.WatchChan
	line   map[string]etcdlock.Leader
	at     []etcdlock.Leader // who was first, from revision to revision
}

// watchHistory begins before anybody has campaigned.
func watchHistory(t *testing.T, c *clientv3.Client) *history {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	h := &history{line: map[string]etcdlock.Leader{}, at: []etcdlock.Leader{{}}}
	h.events = c.Watch(ctx, controllerPrefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	created := await(t, "the watch", h.events)
	require.True(t, created.Created)
	return h
}

// until returns who has been first, in order, up to one of that value.
func (h *history) until(t *testing.T, value string) []etcdlock.Leader {
	t.Helper()
	for {
		response := await(t, "a leader called "+value, h.events)
		require.NoError(t, response.Err())
		for i, event := range response.Events {
			kv := event.Kv
			if event.Type == clientv3.EventTypeDelete {
				delete(h.line, string(kv.Key))
			} else {
				h.line[string(kv.Key)] = etcdlock.Leader{Value: string(kv.Value), Key: string(kv.Key), Token: etcdlock.Token(kv.CreateRevision)}
			}
			if i < len(response.Events)-1 && response.Events[i+1].Kv.ModRevision == kv.ModRevision {
				continue // of the same transaction
			}
			if first := h.first(); first != h.at[len(h.at)-1] {
				h.at = append(h.at, first)
			}
			if h.at[len(h.at)-1].Value == value {
				return h.at
			}
		}
	}
}

func (h *history) first() (first etcdlock.Leader) {
	for _, l := range h.line {
		if first.Vacant() || l.Token < first.Token {
			first = l
		}
	}
	return first
}

func values(leaders []etcdlock.Leader) []string {
	var all []string
	for _, l := range leaders {
		all = append(all, l.Value)
	}
	return all
}

// observation is what an observer has been told.
type observation struct {
	first <-chan etcdlock.Leader   // one value, at once
	all   <-chan []etcdlock.Leader // one value, at the end
	count *atomic.Int64            // of states so far
}

// observing observes in the background until there is a leader of that value.
func observing(ctx context.Context, e *etcdlock.Election, last string) observation {
	first, all := make(chan etcdlock.Leader, 1), make(chan []etcdlock.Leader, 1)
	var count atomic.Int64
	go func() {
		var seen []etcdlock.Leader
		for leader, err := range e.Observe(ctx) {
			if err != nil {
				leader.Value = err.Error()
			}
			if seen = append(seen, leader); len(seen) == 1 {
				first <- leader
			}
			count.Add(1)
			if leader.Value == last {
				break
			}
		}
		all <- seen
	}()
	return observation{first, all, &count}
}

// passes tells the transaction that passes a term on from a resignation: it is about two
// candidates at least.
func passes(message any) bool {
	return len(message.(*etcdserverpb.TxnRequest).GetCompare()) > 1 && retires(message)
}
