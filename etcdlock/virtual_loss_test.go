package etcdlock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// trouble keeps the holder's renewals from being answered. late says that etcd may have
// renewed the lease all the same, after the last answer.
type trouble struct {
	name  string
	late  bool
	begin func(*embedtest.Cluster, *embedtest.Link, clientv3.LeaseID)
}

var troubles = []trouble{
	{name: "requests lost", begin: func(c *embedtest.Cluster, _ *embedtest.Link, lease clientv3.LeaseID) {
		c.LoseRequest("LeaseKeepAlive", of(lease))
	}},
	{name: "answers lost", late: true, begin: func(c *embedtest.Cluster, _ *embedtest.Link, lease clientv3.LeaseID) {
		c.LoseReply("LeaseKeepAlive", of(lease))
	}},
	{name: "black hole", begin: func(_ *embedtest.Cluster, link *embedtest.Link, _ clientv3.LeaseID) {
		link.Blackhole()
	}},
	{name: "cut", begin: func(_ *embedtest.Cluster, link *embedtest.Link, _ clientv3.LeaseID) {
		link.Cut()
	}},
}

// The holder hears of the loss at the last answered renewal's
// start + TTL - margin, and the next one gets in when etcd has noticed that the TTL is over.
func TestTheHolderHearsOfTheLossBeforeTheNextOneGetsIn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ ttl, margin, slow time.Duration }{
		{ttl: 2 * time.Second},
		{ttl: 5 * time.Second, margin: time.Millisecond},
		{ttl: 15 * time.Second},
		{ttl: 15 * time.Second, slow: 1900 * time.Millisecond}, // each answer comes that late
		{ttl: 15 * time.Second, margin: 7 * time.Second},
		{ttl: time.Minute, margin: 100 * time.Millisecond, slow: 3 * time.Second},
		{ttl: 2 * time.Minute},
	} {
		for _, trouble := range troubles {
			t.Run(fmt.Sprintf("%v-%v-%v %s", tt.ttl, tt.margin, tt.slow, trouble.name), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, c *embedtest.Cluster, _ *clientv3.Client) {
					opts := []session.Option{session.WithTTL(tt.ttl)}
					margin := max(tt.ttl/10, 200*time.Millisecond)
					if tt.margin > 0 {
						margin = tt.margin
						opts = append(opts, session.WithMargin(margin))
					}
					client, link := c.Link(t)
					s := virtualSession(t, client, opts...)
					t.Cleanup(func() { link.Heal() })
					h := lock(t, etcdlock.NewMutex(s, "job"))
					next := etcdlock.NewMutex(virtualSession(t, c.Client(t)), "job")
					granted := stopwatch(func() {
						h, err := next.Lock(t.Context())
						if err == nil {
							_ = h.Unlock(t.Context())
						}
					})
					answered := noteRenewals(c)
					slow := c.Delay("LeaseKeepAlive", tt.slow, of(s.Lease()))
					time.Sleep(2*tt.ttl + tt.ttl/4) // several renewals; one is answered, the next is not due
					require.NoError(t, h.Err())
					slow.Heal()
					sent := answered.of(s.Lease())
					require.NotZero(t, sent)
					require.Equal(t, sent.Add(tt.ttl-margin), h.Deadline())

					trouble.begin(c, link, s.Lease())
					lost := stopwatch(func() { <-h.Done() })
					require.Equal(t, sent.Add(tt.ttl-margin), <-lost)
					require.ErrorIs(t, h.Err(), etcdlock.ErrLost)

					got, latest := <-granted, sent.Add(tt.ttl+expiryCheck)
					if trouble.late {
						latest = latest.Add(tt.ttl - margin)
					}
					require.GreaterOrEqual(t, got.Sub(sent), tt.ttl)
					require.LessOrEqual(t, got, latest)
				})
			})
		}
	}
}
