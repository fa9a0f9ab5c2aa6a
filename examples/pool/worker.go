package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/session"
)

const (
	ttl          = 2 * time.Second
	batch        = 3 // requests with one permit
	closeTimeout = 3 * time.Second
)

// config is what a process gets at its start.
type config struct {
	Name     string
	Workers  int
	Licences int
	Backend  string // its URL
}

// errRefused says that the backend has too many users.
var errRefused = errors.New("the backend has no licence left")

// process has several workers that share a session.
func process(ctx context.Context, e *stage.Etcd) (err error) {
	var c config
	if err := e.Job(&c); err != nil {
		return err
	}
	sessions := session.Keep(e.Client, session.WithTTL(ttl))
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err = errors.Join(err, sessions.Close(bounded))
	}()
	licences := etcdlock.NewSemaphore(sessions, "licences", int64(c.Licences), etcdlock.WithSlots(),
		etcdlock.WithNamespace(e.Prefix+"locks"), etcdlock.WithLabel(c.Name))
	var group sync.WaitGroup
	failures := make(chan error, c.Workers)
	for range c.Workers {
		group.Go(func() { failures <- worker(ctx, e, c, licences) })
	}
	group.Wait()
	close(failures)
	for failure := range failures {
		err = errors.Join(err, failure)
	}
	return err
}

// worker works with one licence at a time until ctx ends. The number of the permit is the shard.
func worker(ctx context.Context, e *stage.Etcd, c config, licences *etcdlock.Semaphore) error {
	for ctx.Err() == nil {
		err := etcdlock.Do(ctx, licences, func(_ context.Context, h *etcdlock.Hold) error {
			ctx := h.Context() // a batch that has begun is finished, unless the permit is lost
			shard, _ := h.Slot()
			for range batch {
				if err := advance(ctx, e, c, h, shard); err != nil {
					return err
				}
			}
			return nil
		})
		switch {
		case errors.Is(err, context.Canceled): // ctx has ended, or with the loss something has been broken off
		case errors.Is(err, etcdlock.ErrLost), errors.Is(err, etcdlock.ErrOutcomeUnknown):
			// The next owner of the shard goes on from what is written.
		case err != nil:
			return err
		}
	}
	return nil
}

// advance works on the next item of a shard, and writes down how far it is. Owners of a slot
// follow each other, so the guard keeps one that has lost it from setting the shard back.
func advance(ctx context.Context, e *stage.Etcd, c config, h *etcdlock.Hold, shard int) error {
	key := shardKey(e, shard)
	answer, err := e.Client.Get(ctx, key)
	if err != nil {
		return err
	}
	done := 0
	for _, kv := range answer.Kvs {
		if done, err = strconv.Atoi(string(kv.Value)); err != nil {
			return err
		}
	}
	if err := use(ctx, c, shard); err != nil {
		return err
	}
	_, err = h.Txn(ctx).Then(clientv3.OpPut(key, strconv.Itoa(done+1))).Commit()
	return err
}

func shardKey(e *stage.Etcd, shard int) string { return fmt.Sprintf("%sshard/%d", e.Prefix, shard) }

// use is one request to the backend, which takes a licence for as long as it lasts.
func use(ctx context.Context, c config, shard int) error {
	url := fmt.Sprintf("%s/%s/%d", c.Backend, c.Name, shard)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusTooManyRequests:
		return errRefused
	default:
		return fmt.Errorf("the backend answers %s", answer.Status)
	}
}

// unlimited is a process whose workers use the backend as if there were licences for all.
func unlimited(ctx context.Context, e *stage.Etcd) error {
	var c config
	if err := e.Job(&c); err != nil {
		return err
	}
	var group sync.WaitGroup
	failures := make(chan error, c.Workers)
	for i := range c.Workers {
		group.Go(func() {
			// That it is refused is what the backend counts.
			if err := use(ctx, c, i%c.Licences); err != nil && !errors.Is(err, errRefused) {
				failures <- err
			}
		})
	}
	group.Wait()
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}
