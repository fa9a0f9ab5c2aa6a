package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
)

// Keeper is a [Source] that creates a session when one is first needed, and a new one
// after a loss. Holds and keys of a lost session stay lost. It is safe for concurrent use.
//
// It replaces a session that is not lost in one case: 512 calls were given up whose requests may yet create keys, and
// etcd refuses the write that would prevent that, mostly because a permission is missing (see docs/operating.md). New
// callers get another session. The old one is lost when no lock of it is held or waited for; its error names the reason.
type Keeper struct {
	client  *clientv3.Client
	options options

	// life ends with Close.
	life context.Context
	end  context.CancelFunc

	current atomic.Pointer[Session] // is stored with mu locked

	mu       sync.Mutex
	creation *creation             // in progress, or nil
	replaced map[*Session]struct{} // each lives until nobody uses it
}

// errReplaced is why a Keeper has ended a session that nobody used any more.
var errReplaced = errors.New("replaced by the Keeper")

// creation is a session that is being created. Its goroutine belongs to the Keeper, not to a
// caller: a lease that is granted late is kept for the next call.
type creation struct {
	ctx    context.Context // ends what Close does not wait for
	cancel context.CancelFunc
	done   chan struct{}

	// Guarded by the Keeper's mu.
	waiting int       // callers
	left    time.Time // by one of them, last
	last    error     // of the latest attempt
	err     error     // with which all callers fail, when it is done
}

// Keep returns a Keeper. It makes no request yet; mistakes in the options show
// when the first session is created. A nil client or option panics.
func Keep(c *clientv3.Client, opts ...Option) *Keeper {
	if c == nil {
		panic("session: Keep needs a client")
	}
	k := &Keeper{client: c, options: collect(opts), replaced: make(map[*Session]struct{})}
	k.life, k.end = context.WithCancel(context.Background())
	return k
}

// Client returns the client that sessions are created with.
func (k *Keeper) Client() *clientv3.Client { return k.client }

// Session returns the current session, or waits for a new one if there is none or
// it has been lost (see [New] for cost and errors). All callers wait for the same
// session, each until its own context ends; the first starts the creation, which begins attempts until
// 10 s after the last has given up. A lease that is granted late serves the next call. Without a
// deadline in ctx the wait ends after 10 s. After Close the error is [ErrClosed]. A nil context panics.
func (k *Keeper) Session(ctx context.Context) (*Session, error) {
	k.ready(ctx)
	if s := k.alive(); s != nil {
		return s, nil
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	s, err := k.await(ctx)
	return s, request.Explain(k.client, err)
}

func (k *Keeper) await(ctx context.Context) (*Session, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for last := error(nil); ; {
		if k.life.Err() != nil {
			return nil, ErrClosed
		}
		if s := k.alive(); s != nil {
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("session: creating a lease: %w", request.Ended(ctx, last))
		}
		if k.creation == nil {
			c := &creation{done: make(chan struct{})}
			c.ctx, c.cancel = context.WithCancel(context.Background())
			k.creation = c
			go k.create(c)
		}
		c := k.creation
		c.waiting++
		k.mu.Unlock()
		select {
		case <-c.done:
		case <-ctx.Done():
		case <-k.life.Done():
		}
		k.mu.Lock()
		c.waiting, c.left, last = c.waiting-1, time.Now(), c.last
		if c.err != nil {
			return nil, c.err
		}
	}
}

// create ends with etcd's answer or refusal, or with c's context; and with a failed attempt after Close, or if
// no caller has waited for long.
func (k *Keeper) create(c *creation) {
	defer c.cancel()
	wanted, stop := context.WithCancel(k.life)
	defer stop()
	s, err := create(c.ctx, wanted, k.client, k.options, func(err error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if c.last = err; c.waiting == 0 && time.Since(c.left) >= defaultTimeout {
			stop()
		}
	})
	if s != nil {
		k.offer(s)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if wanted.Err() == nil { // otherwise a caller that waits asks again
		c.err = err
	}
	k.creation = nil
	close(c.done)
}

// offer makes s the current session.
func (k *Keeper) offer(s *Session) {
	k.mu.Lock()
	before := k.current.Swap(s)
	if before != nil && before.Err() == nil {
		k.replaced[before] = struct{}{}
		go k.endReplaced(before)
	}
	closed := k.life.Err() != nil
	k.mu.Unlock()
	if closed {
		_ = s.Close(context.Background()) // Close tries again, if it still waits
	}
}

func (k *Keeper) ready(ctx context.Context) {
	if k.client == nil {
		panic("session: a Keeper is made with Keep")
	}
	request.NeedContext(ctx)
}

// Current returns the session that [Keeper.Session] would return at once, if there is one. It creates none and makes
// no request. It is for displays: of the lease, its state, its deadline.
func (k *Keeper) Current() (*Session, bool) {
	s := k.alive()
	return s, s != nil
}

func (k *Keeper) alive() *Session {
	if k.life.Err() != nil {
		return nil
	}
	if s := k.current.Load(); s != nil && s.Err() == nil && !s.link.Spent() {
		return s
	}
	return nil
}

// endReplaced ends a session that another one has replaced, as lost, when nobody uses it any more.
func (k *Keeper) endReplaced(s *Session) {
	why := fmt.Errorf("%w: %w", errReplaced, s.link.Spending())
	s.logger.Warn("session is being replaced", "reason", why)
	s.link.Retire()
	_ = s.link.AwaitUnused(s.ctx) // ends with the session, too
	// A failure leaves the lease to expire.
	_ = s.close(context.Background(), s.loss(why))
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.replaced, s)
}

// sessions returns those that live, the current one last.
func (k *Keeper) sessions() []*Session {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := slices.Collect(maps.Keys(k.replaced))
	if s := k.current.Load(); s != nil {
		all = append(all, s)
	}
	return all
}

// Drain is Close for a process that finishes its work first. Callers of Session get [ErrClosed] from now on. The current
// session is renewed until each of its locks, and of the locks that earlier calls wait for, is released. Then Drain
// closes it, see [Keeper.Close]. A call that waits in memory for another one of this process (WithLocalHandover,
// WithRetention of package etcdlock) gets ErrClosed. Locks that are kept without a holder are released, and those with a
// minimum time outlast the session. If ctx ends before, Drain closes the session all the same, which ends its holds, and
// returns an error that wraps ctx's. Without a deadline in ctx the wait has no limit. Drain makes the requests of Close.
// A nil context panics.
func (k *Keeper) Drain(ctx context.Context) error {
	k.ready(ctx)
	k.mu.Lock()
	k.end()
	k.mu.Unlock()
	var early error
	all := k.sessions()
	for _, s := range all {
		s.link.Retire()
	}
	for _, s := range all {
		if s.link.AwaitUnused(ctx) != nil {
			early = fmt.Errorf("session: closed while locks were held or waited for: %w", request.Ended(ctx, nil))
		}
	}
	return errors.Join(early, k.Close(ctx))
}

// Close closes the current session, if there is one, and makes no further ones: callers that wait
// for one get [ErrClosed]. Costs and errors are those of [Session.Close]. If a lease is being granted, it waits up to 3 s
// for the answer, unless there is no connection, and revokes the lease; in the background if ctx ends before. It may be
// called again. A nil context panics.
func (k *Keeper) Close(ctx context.Context) error {
	k.ready(ctx)
	ctx, stop := bounded(ctx)
	defer stop()
	ctx, cancel := request.Grace(ctx)
	defer cancel()
	k.mu.Lock()
	k.end()
	c := k.creation
	k.mu.Unlock()
	if c != nil {
		if request.Connected(k.client) {
			time.AfterFunc(request.FirstAttempt, c.cancel)
		} else {
			c.cancel()
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			return fmt.Errorf("session: waiting for a lease to revoke: %w", request.Ended(ctx, nil))
		}
	}
	all := k.sessions()
	failures := make([]error, len(all))
	var closing sync.WaitGroup
	for i, s := range all {
		closing.Go(func() { failures[i] = s.Close(ctx) })
	}
	closing.Wait()
	return errors.Join(failures...)
}
