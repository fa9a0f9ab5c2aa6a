package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

func crashWorkload() workload {
	return workload{
		name: "crash",
		about: "The holder's packets vanish, as when its machine or a switch fails, at a random moment between " +
			"two renewals. From then until the waiter is granted, and until the holder itself, which goes on running, is notified that it may have lost the lock: " +
			"if that is later, both believe that they have it. Redsync and redislock do not renew, so their locks expire anyway, without notice (—).",
		kinds:   []Kind{Mutex, Election},
		metrics: []metric{{name: "next owner in, s"}, {name: "holder notified, s"}, {name: "both believe, s"}},
		idle:    true,
		measure: crash,
	}
}

func crash(ctx context.Context, c *cell) ([]float64, error) {
	ttl := c.options.ttl
	dying, err := c.connect(ctx, true)
	if err != nil {
		return nil, err
	}
	s, err := dying.Session(ctx, ttl)
	if err != nil {
		return nil, err
	}
	defer func() { // the client first: the session would wait for an answer
		dying.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.Close(ctx)
	}()
	h, err := s.Locker(c.name).Lock(ctx)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	waiting, err := c.connect(ctx, false)
	if err != nil {
		return nil, err
	}
	w, err := c.session(ctx, waiting, ttl)
	if err != nil {
		return nil, err
	}
	next := lockLater(ctx, w.Locker(c.name))
	time.Sleep(settle + rand.N(ttl/3))

	dying.Blackhole()
	began := time.Now()
	told := make(chan time.Time, 1)
	if h.Lost != nil {
		go func() {
			select {
			case <-h.Lost:
				told <- time.Now()
			case <-ctx.Done():
			}
		}()
	}
	g := <-next
	if g.err != nil {
		return nil, fmt.Errorf("lock: %w", g.err)
	}
	figures := []float64{g.at.Sub(began).Seconds(), unknown, unknown}
	if h.Lost != nil {
		select {
		case at := <-told:
			figures[1] = at.Sub(began).Seconds()
			figures[2] = max(0, at.Sub(g.at).Seconds())
		case <-time.After(3 * ttl):
			return nil, errors.New("the holder was not notified")
		}
	}
	return figures, g.hold.Unlock(ctx)
}

// grant is what a call of Lock came to.
type grant struct {
	hold Hold
	at   time.Time
	err  error
}

func lockLater(ctx context.Context, l Locker) <-chan grant {
	next := make(chan grant, 1)
	go func() {
		h, err := l.Lock(ctx)
		next <- grant{h, time.Now(), err}
	}()
	return next
}
