package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

// schedule runs a job once per tick, in however many processes it is started. Tick n is at
// Epoch + n*Every.
type schedule struct {
	name   string // of this process
	epoch  time.Time
	every  time.Duration
	clock  func() time.Time // of this machine
	client *clientv3.Client
	prefix string // of the records
	// lock has a minimum hold. It is longer than clocks differ, so that a late process finds it
	// taken. It is shorter than a tick less that difference, so that the first one finds it free.
	lock *etcdlock.Mutex
	job  func(ctx context.Context, tick int) error
	say  func(format string, args ...any)
}

// record is what etcd has of a tick that has begun.
type record struct {
	Tick  int
	By    string
	Late  bool // made up for, when it was another's turn
	Begun time.Time
	Done  bool
}

// run tries every tick until ctx ends. A run that has begun is finished.
func (s *schedule) run(ctx context.Context) error {
	for {
		tick := int(s.clock().Sub(s.epoch)/s.every) + 1
		timer := time.NewTimer(s.epoch.Add(time.Duration(tick) * s.every).Sub(s.clock()))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		if err := s.try(context.WithoutCancel(ctx), tick); err != nil {
			// The next process makes up for a tick that has not begun. One that has begun is not begun
			// again, here or elsewhere: nobody knows how far it got.
			s.say("tick %3d  %s: %v", tick, s.name, err)
		}
	}
}

// try runs the job for the ticks up to this one, unless another process does.
func (s *schedule) try(ctx context.Context, tick int) error {
	err := etcdlock.TryDo(ctx, s.lock, func(ctx context.Context, h *etcdlock.Hold) error {
		last, err := s.last(ctx)
		if err != nil {
			return err
		}
		// All processes have missed a tick that has no record. A job may want to make up for
		// such ticks one by one, at once, or not at all. This one wants each.
		for missed := last + 1; missed <= tick; missed++ {
			if err := s.once(h, record{Tick: missed, By: s.name, Late: missed < tick}); err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, etcdlock.ErrBusy) {
		return nil
	}
	return err
}

// once runs the job for a tick that has not been begun yet. It writes the record first. So the job runs
// once even if a process comes so late that the minimum hold is over.
func (s *schedule) once(h *etcdlock.Hold, r record) error {
	ctx := h.Context() // ends if the lock is lost, and not when the process is to stop: then it finishes the tick
	r.Begun = time.Now()
	key := s.key(r.Tick)
	begun, err := h.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).Then(put(key, r)).Commit()
	if err != nil {
		return err
	}
	if !begun.Succeeded {
		return nil
	}
	if err := s.job(ctx, r.Tick); err != nil {
		return fmt.Errorf("tick %d: %w", r.Tick, err)
	}
	r.Done = true
	_, err = h.Txn(ctx).Then(put(key, r)).Commit()
	return err
}

// last returns the last tick that has begun, 0 if there is none.
func (s *schedule) last(ctx context.Context) (int, error) {
	answer, err := s.client.Get(ctx, s.prefix, clientv3.WithLastKey()...)
	if err != nil || len(answer.Kvs) == 0 {
		return 0, err
	}
	return strconv.Atoi(strings.TrimPrefix(string(answer.Kvs[0].Key), s.prefix))
}

func (s *schedule) key(tick int) string { return fmt.Sprintf("%s%012d", s.prefix, tick) }

func put(key string, r record) clientv3.Op {
	value, err := json.Marshal(r)
	if err != nil {
		panic(err) // of numbers and strings
	}
	return clientv3.OpPut(key, string(value))
}
