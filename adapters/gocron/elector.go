package gocronlock

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/go-co-op/gocron/v2"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// ErrNotLeader is returned by [Elector.IsLeader] while another scheduler leads, or none.
var ErrNotLeader = errors.New("gocronlock: not the leader")

// Elector is a [gocron.Elector]: one scheduler of a fleet runs all jobs. It is safe for concurrent use.
type Elector struct {
	term atomic.Pointer[etcdlock.Term] // nil: not the leader
	end  context.CancelFunc
	done chan struct{}
	err  error // with which Run has ended; is read after done
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector that is a candidate in the election of name from now on. Others see value as the
// leader's: the host's name, for example. src should be a session.Keeper. Call Close after Scheduler.Shutdown, not
// before: a job that still runs could be started again by the next leader.
//
// After a change of leader a tick may come again on a scheduler whose clock is behind. A job that must not run twice
// needs a [Locker] with [WithMinHold] instead, or the guard of its hold.
func NewElector(src session.Source, name, value string, opts ...etcdlock.Option) *Elector {
	ctx, end := context.WithCancel(context.Background())
	e := &Elector{end: end, done: make(chan struct{})}
	election := etcdlock.NewElection(src, name, opts...)
	go func() {
		defer close(e.done)
		e.err = election.Run(ctx, value, func(ctx context.Context, t *etcdlock.Term) error {
			e.term.Store(t)
			<-ctx.Done()
			e.term.Store(nil)
			return nil
		})
	}()
	return e
}

// IsLeader returns nil if this scheduler leads: a look at the clock, no request. Otherwise the error wraps
// [ErrNotLeader], and says why if the election has ended: etcd refused it, or the session's Keeper was closed.
func (e *Elector) IsLeader(context.Context) error {
	if t := e.term.Load(); t != nil && t.Err() == nil {
		return nil
	}
	select {
	case <-e.done:
		return errors.Join(ErrNotLeader, e.err)
	default:
		return ErrNotLeader
	}
}

// Term returns the term while this scheduler leads, for its token and guarded transactions.
func (e *Elector) Term() (t *etcdlock.Term, ok bool) {
	t = e.term.Load()
	return t, t != nil && t.Err() == nil
}

// Close resigns and leaves the election. It returns ctx's error if that takes longer than ctx; it goes on in the
// background then.
func (e *Elector) Close(ctx context.Context) error {
	e.end()
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
