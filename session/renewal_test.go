package session_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

// renewals collects what a session reports of its renewals.
func renewals() (reports chan session.Renewal, option session.Option) {
	reports = make(chan session.Renewal, 100)
	return reports, session.WithOnRenewal(func(r session.Renewal) { reports <- r })
}

func TestEachRenewalIsReportedWithTheTrustThatWasLeft(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		reports, option := renewals()
		s := open(t, f, option, session.WithTTL(15*time.Second), session.WithMargin(time.Second))
		require.Equal(t, time.Second, s.Margin())
		require.Equal(t, session.Renewal{Lease: s.Lease(), Left: 9 * time.Second}, <-reports)

		f.Renewals.Meet(late(time.Second))
		require.Equal(t, session.Renewal{Lease: s.Lease(), Took: time.Second, Left: 8 * time.Second}, <-reports)

		f.Renewals.Meet(refused(rpctypes.ErrNoLeader))
		r := <-reports
		require.ErrorIs(t, r.Err, rpctypes.ErrNoLeader)
		require.Equal(t, 9*time.Second, r.Left)

		f.Renewals.Meet(lost)
		<-s.Done()
		silent := 0
		for r.Left > time.Second {
			if r = <-reports; r.Took > 0 {
				require.ErrorContains(t, r.Err, "not been answered")
				silent++
			}
		}
		require.Greater(t, silent, 3)
	})
}

func TestRenewalsOnTheStreamAreReported(t *testing.T) {
	withEtcd(t, func(t *testing.T, c *embedtest.Cluster) {
		reports, option := renewals()
		s := create(t, c.Client(t), session.WithTTL(30*time.Second), option)
		c.Delay("LeaseKeepAlive", time.Second, of(s.Lease()))
		for range 4 {
			require.Equal(t, session.Renewal{Lease: s.Lease(), Took: time.Second, Left: 16 * time.Second}, <-reports)
		}
	})
}
