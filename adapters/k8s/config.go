package k8slock

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/tools/leaderelection"
)

// Timings are client-go's timings that fit a session. A controller-runtime manager needs all three, although the
// comment of its option LeaderElectionResourceLockInterface says that they are ignored.
type Timings struct{ LeaseDuration, RenewDeadline, RetryPeriod time.Duration }

// Timings returns the TTL of the session, half of its margin, and an eighth of it. client-go goes on leading for up
// to RetryPeriod and RenewDeadline after the term is lost, so their sum has to be below the margin; the rest is for
// the work to stop. session.WithMargin makes room for longer ones. If there is no session yet it is created. ctx
// bounds that.
func (l *Lock) Timings(ctx context.Context) (Timings, error) {
	s, err := l.sessions.Session(ctx)
	if err != nil {
		return Timings{}, fmt.Errorf("k8slock: %w", err)
	}
	return Timings{LeaseDuration: s.TTL(), RenewDeadline: s.Margin() / 2, RetryPeriod: s.Margin() / 8}, nil
}

// Config returns the configuration of a LeaderElector with this Lock: its [Lock.Timings], ReleaseOnCancel, and
// OnStartedLeading in [Lock.Wrap]. Errors are those of Timings.
func (l *Lock) Config(ctx context.Context, callbacks leaderelection.LeaderCallbacks) (leaderelection.LeaderElectionConfig, error) {
	t, err := l.Timings(ctx)
	if err != nil {
		return leaderelection.LeaderElectionConfig{}, err
	}
	if callbacks.OnStartedLeading != nil { // otherwise client-go says what is missing
		callbacks.OnStartedLeading = l.Wrap(callbacks.OnStartedLeading)
	}
	return leaderelection.LeaderElectionConfig{
		Lock: l, Name: l.name, ReleaseOnCancel: true, Callbacks: callbacks,
		LeaseDuration: t.LeaseDuration, RenewDeadline: t.RenewDeadline, RetryPeriod: t.RetryPeriod,
	}, nil
}
