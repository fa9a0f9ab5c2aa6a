package main

import (
	"context"
	"errors"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/cmd/etcdlock/internal/child"
	"github.com/etcdlock/locks/cmd/etcdlock/internal/waits"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// ask stands in line for a lock until its holder has given it up, and removes the holder after grace, unless that is 0.
// A holder that looks for waiters gives the lock up then: "run --yield", or one that calls Hold.Wanted.
func (c *connection) ask(ctx context.Context, client *clientv3.Client, queue etcdlock.Queue, place etcdlock.Place, grace time.Duration) error {
	ctx, stop := forward(ctx, new(child.Runner), 0)
	defer stop()
	waiting := ctx
	if grace > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, grace)
		defer cancel()
	}
	inLine := func(p etcdlock.Place) bool { return !p.Holding && p.Owner.Mark != waits.MarkUpgrade }
	if !slices.ContainsFunc(queue.Places, inLine) { // the place of an upgrade is the holder's own
		leave := c.standInLine(waiting, client, queue.Name)
		defer leave()
	}
	err := untilGone(waiting, client, place)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case waiting.Err() == nil:
		return err
	}
	say("%q was not given up within %v, removing its holder", queue.Name, grace)
	ctx, cancel := c.limited(ctx)
	defer cancel()
	if err := etcdlock.ForceRelease(ctx, client, place.Key, place.Token); !errors.Is(err, etcdlock.ErrStale) {
		return err
	}
	return nil // it is gone
}

// standInLine waits for the lock without using it. The function that it returns gives the place up.
func (c *connection) standInLine(ctx context.Context, client *clientv3.Client, name string) (leave func()) {
	ctx, cancel := context.WithCancel(ctx)
	sessions := session.Keep(client, session.WithTTL(defaultTTL))
	mutex := etcdlock.NewMutex(sessions, name, append(c.options(), etcdlock.WithLabel("asks for the lock"))...)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := mutex.Lock(ctx); err != nil && ctx.Err() == nil {
			say("standing in line for %q: %v", name, err)
		}
	}()
	return func() {
		cancel()
		<-done
		limited, cancel := c.limited(context.Background())
		defer cancel()
		_ = sessions.Close(limited) // which gives back what was got
	}
}

// untilGone returns nil when the place is not in its queue any more.
func untilGone(ctx context.Context, client *clientv3.Client, place etcdlock.Place) error {
	for {
		var read *clientv3.GetResponse
		err := session.Retry(ctx, func(ctx context.Context) (err error) {
			read, err = client.Get(ctx, place.Key)
			return err
		})
		switch {
		case err != nil:
			return err
		case len(read.Kvs) == 0 || read.Kvs[0].CreateRevision != int64(place.Token):
			return nil
		}
		nextDeletion(ctx, client, place.Key, read.Header.Revision+1)
	}
}

// nextDeletion returns when a key is deleted, or the watch fails.
func nextDeletion(ctx context.Context, client *clientv3.Client, key string, from int64) {
	ctx, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer stop()
	for answer := range client.Watch(ctx, key, clientv3.WithRev(from), clientv3.WithFilterPut()) {
		if answer.Err() != nil || len(answer.Events) > 0 {
			return
		}
	}
}
