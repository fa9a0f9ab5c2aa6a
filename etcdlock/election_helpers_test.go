package etcdlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const controllerPrefix = "etcdlock/controller/"

// contest is the election "controller", and its candidates.
type contest struct {
	t       *testing.T
	cluster *embedtest.Cluster
	client  *clientv3.Client
	session func() session.Source  // a new one
	keeper  func() *session.Keeper // a new one

	standing map[string]<-chan campaigned // by value
}

// newContest is for a test that runs beside others.
func newContest(t *testing.T, opts ...embedtest.Option) *contest {
	t.Helper()
	cluster, client := newCluster(t, opts...)
	return &contest{
		t: t, cluster: cluster, client: client, standing: map[string]<-chan campaigned{},
		session: func() session.Source { return newSession(t, cluster.Client(t)) },
		keeper:  func() *session.Keeper { return keep(t, cluster.Client(t)) },
	}
}

// inVirtualContest runs test in virtual time.
func inVirtualContest(t *testing.T, test func(*testing.T, *contest)) {
	t.Helper()
	inVirtualTime(t, func(t *testing.T, c *embedtest.Cluster, client *clientv3.Client) {
		test(t, &contest{
			t: t, cluster: c, client: client, standing: map[string]<-chan campaigned{},
			session: func() session.Source { return virtualSession(t, c.Client(t)) },
			keeper:  func() *session.Keeper { return virtualKeeper(t, c.Client(t)) },
		})
	})
}

// candidate returns the election, with a session of its own.
func (c *contest) candidate(opts ...etcdlock.Option) *etcdlock.Election {
	c.t.Helper()
	return etcdlock.NewElection(c.session(), "controller", opts...)
}

// lead campaigns where nobody is in the way.
func (c *contest) lead(value string, opts ...etcdlock.Option) *etcdlock.Term {
	c.t.Helper()
	return lead(c.t, c.candidate(opts...), value)
}

// stand puts a new candidate in line.
func (c *contest) stand(value string, opts ...etcdlock.Option) <-chan campaigned {
	c.t.Helper()
	return c.standOn(c.candidate(opts...), value)
}

// standOn puts a candidate of the election e in line.
func (c *contest) standOn(e *etcdlock.Election, value string) <-chan campaigned {
	c.t.Helper()
	before := tickets(c.t, c.client)
	c.standing[value] = campaigning(within(c.t), e, value)
	awaitTickets(c.t, c.client, before+1)
	return c.standing[value]
}

// next waits until a candidate in line leads.
func (c *contest) next(value string) *etcdlock.Term {
	c.t.Helper()
	term := awaitTerm(c.t, value, c.standing[value])
	delete(c.standing, value)
	return term
}

// requireWaiting requires that nothing has come of the campaigns of some.
func (c *contest) requireWaiting(values ...string) {
	c.t.Helper()
	for _, value := range values {
		requireWaiting(c.t, c.standing[value])
	}
}

// line returns the values of the leader and of the waiting candidates, in order.
func (c *contest) line() []string {
	c.t.Helper()
	answer, err := c.client.Get(within(c.t), controllerPrefix, clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	require.NoError(c.t, err)
	values := []string{}
	for _, kv := range answer.Kvs {
		values = append(values, string(kv.Value))
	}
	return values
}

func (c *contest) awaitLine(values ...string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool { return slices.Equal(c.line(), values) }, patience, waitABit)
}

// keyOf returns the key of the candidate with that value.
func (c *contest) keyOf(value string) string {
	c.t.Helper()
	answer, err := c.client.Get(within(c.t), controllerPrefix, clientv3.WithPrefix())
	require.NoError(c.t, err)
	for _, kv := range answer.Kvs {
		if string(kv.Value) == value {
			return string(kv.Key)
		}
	}
	require.FailNow(c.t, "nobody is called "+value)
	return ""
}

// standForeign puts a candidate of etcd's own package in line.
func (c *contest) standForeign(value string) (led <-chan error, s *concurrency.Session) {
	c.t.Helper()
	s, err := concurrency.NewSession(c.client)
	require.NoError(c.t, err)
	before, ctx := tickets(c.t, c.client), within(c.t)
	led = background(func() error { return concurrency.NewElection(s, "etcdlock/controller").Campaign(ctx, value) })
	awaitTickets(c.t, c.client, before+1)
	return led, s
}

// standCutOff puts a candidate in line whose session has just ceased to be renewed, in virtual time.
func (c *contest) standCutOff(value string) {
	c.t.Helper()
	lease, err := c.client.Grant(within(c.t), 15)
	require.NoError(c.t, err)
	_, err = c.client.Put(within(c.t), fmt.Sprintf("%sl%x-0-9", controllerPrefix, lease.ID), value, clientv3.WithLease(lease.ID))
	require.NoError(c.t, err)
	time.Sleep(9 * time.Second)
}

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

// leader is what is seen of a term.
func leader(term *etcdlock.Term, value string) etcdlock.Leader {
	return etcdlock.Leader{Value: value, Key: term.Key(), Token: term.Token()}
}

func values(leaders []etcdlock.Leader) (all []string) {
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
	return len(message.(*etcdserverpb.TxnRequest).GetCompare()) > 1 && deletes(message)
}
