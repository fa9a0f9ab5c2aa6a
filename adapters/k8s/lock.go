package k8slock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const (
	// idleTimeout is how long a candidate stays in line although nobody calls.
	idleTimeout = 30 * time.Second
	// retryPause is between campaigns that fail for good: client-go itself comes back after a RetryPeriod.
	retryPause = time.Second
	// stoppedLeading is the event that client-go records at the end of every term, also when it panics.
	stoppedLeading = "stopped leading"
	// unlimited is the duration of another leader's lease, in seconds. client-go must not judge that it has expired.
	unlimited = 1<<31 - 1
)

// Lock is a [resourcelock.Interface] that is a candidate of an [etcdlock.Election]. One Lock serves one
// LeaderElector at a time, or several one after the other. It is safe for concurrent use.
type Lock struct {
	sessions       session.Source
	election       *etcdlock.Election
	name, identity string

	latest atomic.Pointer[etcdlock.Term] // that client-go has taken; nil: none yet

	mu       sync.Mutex
	current  *candidate     // nil: not in line
	changed  chan struct{}  // closed and replaced at every change of what mu guards
	told     etcdlock.Token // of the leader that Get has returned last
	answers  int            // of Get
	failed   error          // of a campaign, for the next Get
	retry    time.Time      // no campaign starts before
	gets     int            // in progress
	lastCall time.Time
	idle     *time.Timer // nil: it has never run
	closed   bool
}

var _ resourcelock.Interface = (*Lock)(nil)

// New returns a Lock for the election of name. Observers see identity as the value of the leader: the pod's name, for
// example. src should be a session.Keeper: close it after the Lock. An empty identity panics. No request is
// made, and no goroutine starts, before the first Get.
func New(src session.Source, name, identity string, opts ...etcdlock.Option) *Lock {
	if identity == "" {
		panic("k8slock: New needs an identity")
	}
	return &Lock{
		sessions: src, election: etcdlock.NewElection(src, name, opts...),
		name: name, identity: identity, changed: make(chan struct{}),
	}
}

// Identity returns the identity of this candidate.
func (l *Lock) Identity() string { return l.identity }

// Describe returns the name of the election, for client-go's log.
func (l *Lock) Describe() string { return fmt.Sprintf("etcdlock election %q", l.name) }

// Get stands in line, if it does not yet, and returns the leader. While client-go does not lead, Get waits until
// this candidate may lead, or until there is another leader than at the last Get. A record without holder means that
// this candidate may lead: Update takes the term. Get makes no request itself. It returns ctx's error if ctx ends
// before, and the election's if etcd refuses the candidate (permission denied, no space) or the session's Keeper is
// closed. While etcd cannot be reached, it waits.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gets++
	defer func() {
		l.gets--
		l.touch()
	}()
	for {
		record, err := l.look()
		if record != nil || err != nil {
			l.answers++
			return record, fmt.Append(nil, l.answers), err // client-go looks at a record only if the bytes are new
		}
		if err := l.await(ctx); err != nil {
			l.told = 0 // the next Get may be another LeaderElector's
			return nil, nil, err
		}
	}
}

// look returns what Get returns, or nothing if it has to wait. It is called with mu held.
func (l *Lock) look() (*resourcelock.LeaderElectionRecord, error) {
	c := l.current
	switch {
	case l.closed:
		return nil, fmt.Errorf("k8slock: %w", etcdlock.ErrClosed)
	case l.failed != nil:
		err := l.failed
		l.failed = nil
		return nil, err
	case c == nil:
		if time.Now().Before(l.retry) {
			return nil, nil
		}
		l.stand()
		return nil, nil
	case c.believed() && c.end() == nil:
		record := c.record
		return &record, nil
	case c.believed():
		l.told = 0
		return &resourcelock.LeaderElectionRecord{}, nil // it has to stop, and begins anew then
	case c.term != nil && c.end() == nil && c.working == 0:
		l.told = 0
		return &resourcelock.LeaderElectionRecord{}, nil // it may lead
	case c.taken, c.leader.Vacant(), c.leader.Token == l.told, c.leader.Value == l.identity:
		// The leader of this identity may be a predecessor, or another process. client-go would believe that it leads.
		return nil, nil
	}
	l.told = c.leader.Token
	return &resourcelock.LeaderElectionRecord{HolderIdentity: c.leader.Value, LeaseDurationSeconds: unlimited}, nil
}

// await waits for a change, or until a campaign may be tried again. It is called with mu held.
func (l *Lock) await(ctx context.Context) error {
	changed := l.changed
	var retry <-chan time.Time
	if l.current == nil {
		timer := time.NewTimer(time.Until(l.retry))
		defer timer.Stop()
		retry = timer.C
	}
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-changed:
	case <-retry:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// Create refuses: Get never says that there is no record.
func (l *Lock) Create(_ context.Context, _ resourcelock.LeaderElectionRecord) error {
	return l.conflict("an election is not created")
}

// Update with this candidate's identity takes the term, or says whether it goes on: a look at the clock, no request.
// The error of a term that is over wraps etcdlock.ErrLost or etcdlock.ErrClosed, or etcdlock.ErrUnhealthy. Update
// without a holder resigns: it waits for the functions of [Lock.Wrap] and for etcd. If ctx ends before, it returns
// ctx's error, and the term ends later, when they have returned. Everything else is a conflict.
func (l *Lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.touch()
	switch r.HolderIdentity {
	case l.identity:
		return l.renew(r)
	case "":
		return l.release(ctx)
	}
	return l.conflict("a candidate speaks for itself only")
}

func (l *Lock) renew(r resourcelock.LeaderElectionRecord) error {
	c := l.current
	if c == nil || c.term == nil {
		return l.conflict("this candidate does not lead")
	}
	if err := c.end(); err != nil {
		return fmt.Errorf("k8slock: %w", err)
	}
	if !c.believed() && c.working > 0 {
		return l.conflict("OnStartedLeading has not returned yet")
	}
	c.taken, c.stopped, c.record = true, false, r
	l.latest.Store(c.term)
	return nil
}

// release is called with mu held.
func (l *Lock) release(ctx context.Context) error {
	c := l.current
	if c == nil || !c.believed() {
		return nil
	}
	l.stop(c)
	if err := c.end(); err != nil {
		return fmt.Errorf("k8slock: %w", err)
	}
	c.leave()
	return l.over(ctx, c)
}

// over waits until c has left. It is called with mu held.
func (l *Lock) over(ctx context.Context, c *candidate) error {
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("k8slock: leaving goes on in the background: %w", ctx.Err())
	}
}

// RecordEvent learns from client-go that it has stopped leading. It sends no event.
func (l *Lock) RecordEvent(event string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.current != nil && strings.Contains(event, stoppedLeading) {
		l.stop(l.current)
		l.touch()
	}
}

// Close leaves the line. If client-go leads, Close makes it stop: it waits until client-go has, and until the
// functions of [Lock.Wrap] have returned, and resigns then. If ctx ends before, Close returns ctx's error, and goes
// on in the background. Get returns etcdlock.ErrClosed afterwards. It may be called again.
func (l *Lock) Close(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.change()
	if l.idle != nil {
		l.idle.Stop()
	}
	c := l.current
	if c == nil {
		return nil
	}
	c.leave()
	return l.over(ctx, c)
}

// touch notes a call. It is called with mu held.
func (l *Lock) touch() {
	l.lastCall = time.Now()
	switch {
	case l.closed:
	case l.idle == nil:
		l.idle = time.AfterFunc(idleTimeout, l.abandon)
	default:
		l.idle.Reset(idleTimeout)
	}
}

// abandon leaves the line if client-go has ceased to call, unless it leads: its calls may be far apart then.
func (l *Lock) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.current; c != nil && l.gets == 0 && !c.believed() && time.Since(l.lastCall) >= idleTimeout {
		c.leave()
	}
}

// change wakes all that wait for a change. It is called with mu held.
func (l *Lock) change() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Lock) conflict(why string) error {
	return apierrors.NewConflict(schema.GroupResource{Group: "etcdlock", Resource: "elections"}, l.name, errors.New(why))
}
