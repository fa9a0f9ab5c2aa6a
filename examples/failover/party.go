package main

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/session"
)

// party is a client that wants the lock.
type party struct {
	name     string
	client   *clientv3.Client
	sessions *session.Keeper
	lock     *etcdlock.Mutex
	inLine   chan struct{} // gets something when the lock was found taken
}

// outcome is that of a wait.
type outcome struct {
	hold *etcdlock.Hold
	err  error
}

func arrive(e *stage.Etcd, name string) (*party, error) {
	// The client knows all members, so that it survives one. It dials a member that comes back within
	// 50 ms. gRPC would wait for seconds, and by then these acts have killed the next one.
	client, err := e.Cluster.NewClient()
	if err != nil {
		return nil, err
	}
	p := &party{name: name, client: client, inLine: make(chan struct{}, 1)}
	p.sessions = session.Keep(client, session.WithTTL(ttl))
	p.lock = etcdlock.NewMutex(p.sessions, "work", etcdlock.WithNamespace(e.Prefix+"locks"), etcdlock.WithLabel(name),
		etcdlock.WithHooks(&etcdlock.Hooks{Waiting: func(etcdlock.Waiting) {
			select {
			case p.inLine <- struct{}{}:
			default: // nobody has looked since the last time
			}
		}}))
	return p, nil
}

func (p *party) leave(ctx context.Context) {
	_ = p.sessions.Close(context.WithoutCancel(ctx)) // if that fails, the lease runs out
	_ = p.client.Close()
}

// wait begins to wait for the lock.
func (p *party) wait(ctx context.Context) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		hold, err := p.lock.Lock(ctx)
		done <- outcome{hold, err}
	}()
	return done
}

// standsInLine returns when the lock has been found taken.
func (p *party) standsInLine(ctx context.Context, waiting <-chan outcome) error {
	select {
	case <-p.inLine:
		return stillWaiting(p.name, waiting)
	case got := <-waiting:
		return errors.Join(errors.New(p.name+" does not wait"), got.err)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// note writes something that only the holder may write. Writing it twice does no harm. So it is repeated when
// a member dies during the write. A transaction alone is not.
func (p *party) note(ctx context.Context, h *etcdlock.Hold, key, value string) error {
	return session.Retry(ctx, func(ctx context.Context) error {
		_, err := h.Txn(ctx).Then(clientv3.OpPut(key, value)).Commit()
		return err
	})
}

// receive returns the hold that somebody has waited for.
func receive(ctx context.Context, name string, waiting <-chan outcome) (*etcdlock.Hold, error) {
	select {
	case got := <-waiting:
		if got.err != nil {
			return nil, fmt.Errorf("%s waited: %w", name, got.err)
		}
		return got.hold, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// stillWaiting returns an error if the wait is over.
func stillWaiting(name string, waiting <-chan outcome) error {
	select {
	case got := <-waiting:
		if got.err == nil {
			return errors.New(name + " has got a lock that nobody can have now")
		}
		return fmt.Errorf("%s has given up: %w", name, got.err)
	default:
		return nil
	}
}

// takenOver returns the hold that p has waited for.
func takenOver(ctx context.Context, e *stage.Etcd, from *etcdlock.Hold, p *party, waiting <-chan outcome) (*etcdlock.Hold, error) {
	h, err := receive(ctx, p.name, waiting)
	if err != nil {
		return nil, err
	}
	e.Say("%-6s holds the lock with token %d", p.name, h.Token())
	if h.Token() <= from.Token() {
		return nil, fmt.Errorf("%s has token %d after token %d", p.name, h.Token(), from.Token())
	}
	return h, p.note(ctx, h, e.Prefix+"note", p.name)
}
