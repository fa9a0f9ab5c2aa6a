package k8slock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/leaderelection"

	k8slock "github.com/etcdlock/locks/adapters/k8s"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

func TestTheTimingsAreBelowTheMargin(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	for _, options := range [][]session.Option{
		nil,
		{session.WithTTL(2 * time.Second)},
		{session.WithTTL(30 * time.Second), session.WithMargin(14 * time.Second)},
	} {
		k := keep(t, cluster.Client(t), options...)
		l := k8slock.New(k, name, "a")
		timings, err := l.Timings(t.Context())
		require.NoError(t, err)
		s, err := k.Session(t.Context())
		require.NoError(t, err)
		require.Equal(t, s.TTL(), timings.LeaseDuration)
		require.Less(t, timings.RenewDeadline+timings.RetryPeriod, s.Margin())

		config, err := l.Config(t.Context(), leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {},
		})
		require.NoError(t, err)
		require.True(t, config.ReleaseOnCancel)
		inConfig := k8slock.Timings{
			LeaseDuration: config.LeaseDuration, RenewDeadline: config.RenewDeadline, RetryPeriod: config.RetryPeriod,
		}
		require.Equal(t, timings, inConfig)
		_, err = leaderelection.NewLeaderElector(config)
		require.NoError(t, err)
		config, err = l.Config(t.Context(), leaderelection.LeaderCallbacks{})
		require.NoError(t, err)
		_, err = leaderelection.NewLeaderElector(config)
		require.ErrorContains(t, err, "OnStartedLeading callback must not be nil")
	}
}
