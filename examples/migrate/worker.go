package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/session"
)

const (
	ttl          = 5 * time.Second
	workTime     = 2 * time.Millisecond
	closeTimeout = 3 * time.Second
)

// The two kinds of workers.
const (
	etcds = "etcd"     // with go.etcd.io/etcd/client/v3/concurrency
	ours  = "etcdlock" // with this library
)

// job is what a worker gets at its start.
type job struct{ Name, Kind string }

// turn is what a worker writes down while it has the lock.
type turn struct {
	job
	Key    string // in the queue
	Waited time.Duration
}

// held is the lock while it is held, whichever kind it is.
type held struct {
	key     string
	txn     func(context.Context) clientv3.Txn
	release func(context.Context) error
}

// worker works under the lock, again and again, until ctx ends.
func worker(ctx context.Context, e *stage.Etcd) (err error) {
	var j job
	if err := e.Job(&j); err != nil {
		return err
	}
	lock, closeSession, err := open(ctx, e, j)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bounded(ctx, closeSession)) }()
	for ctx.Err() == nil {
		asked := time.Now()
		h, err := lock(ctx)
		if err != nil {
			return err
		}
		// A turn that has begun is finished: the work does not end with ctx.
		err = work(context.WithoutCancel(ctx), e, h, turn{job: j, Key: h.key, Waited: time.Since(asked)})
		if err := errors.Join(err, bounded(ctx, h.release)); err != nil {
			return err
		}
	}
	return nil
}

// open returns the lock of the worker's kind: in a service, this is what changes.
func open(ctx context.Context, e *stage.Etcd, j job) (lock func(context.Context) (*held, error), closeSession func(context.Context) error, err error) {
	if j.Kind == ours {
		sessions := session.Keep(e.Client, session.WithTTL(ttl))
		mutex := etcdlock.NewMutex(sessions, queue(e), etcdlock.AtPrefix(), etcdlock.WithLabel(j.Name))
		return func(ctx context.Context) (*held, error) {
			h, err := mutex.Lock(ctx)
			if err != nil {
				return nil, err
			}
			return &held{h.Key(), h.Txn, h.Unlock}, nil
		}, sessions.Close, nil
	}
	s, err := concurrency.NewSession(e.Client, concurrency.WithTTL(int(ttl.Seconds())), concurrency.WithContext(context.WithoutCancel(ctx)))
	if err != nil {
		return nil, nil, err
	}
	mutex := concurrency.NewMutex(s, queue(e))
	return func(ctx context.Context) (*held, error) {
		if err := mutex.Lock(ctx); err != nil {
			return nil, err
		}
		guarded := func(ctx context.Context) clientv3.Txn { return e.Client.Txn(ctx).If(mutex.IsOwner()) }
		return &held{mutex.Key(), guarded, mutex.Unlock}, nil
	}, func(context.Context) error { return s.Close() }, nil
}

// work is done by one worker at a time. It would notice if it were not: "busy" would be there
// when it begins, or be another's when it ends.
func work(ctx context.Context, e *stage.Etcd, h *held, t turn) error {
	value, err := json.Marshal(t)
	if err != nil {
		return err
	}
	busy := e.Prefix + "busy"
	began, err := e.Client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(busy), "=", 0)).
		Then(clientv3.OpPut(busy, t.Name)).Commit()
	if err != nil {
		return err
	}
	if !began.Succeeded {
		return fmt.Errorf("two at a time: %s came while another was at work", t.Name)
	}
	time.Sleep(workTime)
	done, err := h.txn(ctx).Then(clientv3.OpDelete(busy), clientv3.OpPut(e.Prefix+"turn", string(value))).Commit()
	if err == nil && !done.Succeeded {
		err = fmt.Errorf("%s has lost the lock", t.Name)
	}
	return err
}

// queue is the prefix that the old code has given to concurrency.NewMutex. Both kinds add a slash.
func queue(e *stage.Etcd) string { return e.Prefix + "jobs" }

// bounded does what has to be done even when ctx is over.
func bounded(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return f(ctx)
}
