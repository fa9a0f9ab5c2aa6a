package session

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Keeper is a [Source] that always has a live session to offer: it creates one
// when it is first needed and a new one after a loss. What was bound to a lost
// session stays lost. It is safe for concurrent use.
type Keeper struct {
	client *clientv3.Client
	opts   []Option

	// turn holds one value: the right to replace current. A channel rather than
	// a mutex, because waiting for it must end with the caller's context.
	turn    chan struct{}
	current atomic.Pointer[Session]
	closed  atomic.Bool
}

// Keep returns a Keeper. It makes no request yet; mistakes in the options show
// when the first session is created. A nil client panics.
func Keep(c *clientv3.Client, opts ...Option) *Keeper {
	if c == nil {
		panic("session: Keep needs a client")
	}
	k := &Keeper{client: c, opts: opts, turn: make(chan struct{}, 1)}
	k.turn <- struct{}{}
	return k
}

// Client returns the client that sessions are created with.
func (k *Keeper) Client() *clientv3.Client { return k.client }

// Session returns the current session, or creates one with ctx if there is none
// or it has been lost (see [New] for cost and errors). Callers at the same time
// share one creation, but each has its own context: if the one that creates
// gives up, the next takes over. Without a deadline in ctx, waiting for a session
// ends after 10 s. After Close it returns [ErrClosed]. A nil context panics.
func (k *Keeper) Session(ctx context.Context) (*Session, error) {
	if ctx == nil {
		panic("session: nil context")
	}
	if s := k.alive(); s != nil {
		return s, nil
	}
	ctx, cancel := bounded(ctx) // waiting for others to fail included
	defer cancel()
	select {
	case <-k.turn:
	case <-ctx.Done():
		return nil, fmt.Errorf("session: waiting for its creation: %w", ctx.Err())
	}
	defer func() { k.turn <- struct{}{} }()
	if k.closed.Load() {
		return nil, ErrClosed
	}
	if s := k.alive(); s != nil {
		return s, nil
	}
	s, err := New(ctx, k.client, k.opts...)
	if err != nil {
		return nil, err
	}
	k.current.Store(s)
	if k.closed.Load() { // while the session was being created
		return nil, errors.Join(ErrClosed, s.Close(ctx))
	}
	return s, nil
}

func (k *Keeper) alive() *Session {
	if s := k.current.Load(); s != nil && s.Err() == nil {
		return s
	}
	return nil
}

// Close closes the current session, if there is one, and makes no further ones.
// See [Session.Close]; it may be called again.
func (k *Keeper) Close(ctx context.Context) error {
	ctx, cancel := Grace(ctx)
	defer cancel()
	ctx, stop := bounded(ctx)
	defer stop()
	k.closed.Store(true)
	select {
	case <-k.turn:
	case <-ctx.Done():
		return ctx.Err() // whoever is creating a session closes it
	}
	defer func() { k.turn <- struct{}{} }()
	if s := k.current.Load(); s != nil {
		return s.Close(ctx)
	}
	return nil
}
