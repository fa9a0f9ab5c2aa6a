package k8slock_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	k8slock "github.com/etcdlock/locks/adapters/k8s"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

// noKubernetes is an address at which nothing listens: the election needs none.
var noKubernetes = &rest.Config{Host: "http://127.0.0.1:1"}

// managed is a manager of controller-runtime with one runnable that needs to lead.
type managed struct {
	manager manager.Manager
	stop    context.CancelFunc
	stopped chan struct{}
	err     error // of Start; is read after stopped
}

func manage(t *testing.T, l *k8slock.Lock, work func(context.Context)) *managed {
	timings, err := l.Timings(t.Context())
	require.NoError(t, err)
	m, err := manager.New(noKubernetes, manager.Options{
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: l,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &timings.LeaseDuration,
		RenewDeadline:                       &timings.RenewDeadline,
		RetryPeriod:                         &timings.RetryPeriod,
		Metrics:                             metricsserver.Options{BindAddress: "0"},
		Logger:                              logr.Discard(),
	})
	require.NoError(t, err)
	require.NoError(t, m.Add(manager.RunnableFunc(func(ctx context.Context) error { // leads by default
		work(ctx)
		return nil
	})))
	ctx, cancel := context.WithCancel(t.Context())
	r := &managed{manager: m, stop: cancel, stopped: make(chan struct{})}
	go func() {
		defer close(r.stopped)
		r.err = m.Start(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-r.stopped:
		case <-time.After(time.Minute):
			t.Error("the manager does not stop")
		}
		_ = l.Close(context.Background())
	})
	return r
}

func TestAManagerLeadsWithoutKubernetesAndHandsOverWhenItsWorkHasStopped(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	h := newHistory()
	slow, obeyed := make(chan struct{}), make(chan struct{})
	a := manage(t, newLock(t, cluster, "a"), func(ctx context.Context) {
		i := h.begin("a")
		<-ctx.Done()
		close(obeyed)
		<-slow
		h.end(i)
	})
	require.Equal(t, "a", h.leader(t, 0).identity)
	<-a.manager.Elected()
	b := manage(t, newLock(t, cluster, "b"), h.lead("b"))
	inLine(t, cluster.Client(t), 1)
	a.stop()
	<-obeyed
	require.Equal(t, 1, h.len(), "the work has not stopped yet")
	close(slow)
	<-a.stopped
	require.NoError(t, a.err)
	require.Equal(t, "b", h.leader(t, 1).identity)
	<-b.manager.Elected()
	require.Zero(t, h.overlap())
}

func TestAManagerInABlackHoleStopsBeforeTheNextLeads(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	h := newHistory()
	client, link := cluster.Link(t)
	options := []session.Option{session.WithTTL(3 * time.Second), session.WithMargin(time.Second)}
	a := manage(t, k8slock.New(keep(t, client, options...), name, "a"), h.lead("a"))
	require.Equal(t, "a", h.leader(t, 0).identity)
	manage(t, k8slock.New(keep(t, cluster.Client(t), options...), name, "b"), h.lead("b"))
	inLine(t, cluster.Client(t), 1)
	link.Blackhole()
	<-a.stopped
	require.ErrorContains(t, a.err, "leader election lost")
	require.Equal(t, "b", h.leader(t, 1).identity)
	require.Zero(t, h.overlap())
	link.Heal()
}
