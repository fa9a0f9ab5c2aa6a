package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// settle is for the waiter's watch to stand. It is longer than 100 ms, because etcd looks
// after watches that begin in the past, as those of its own package do, only that often.
const settle = 300 * time.Millisecond

// maxPoll is the longest interval at which a peer on Redis polls.
const maxPoll = 250 * time.Millisecond

func releaseWorkload() workload {
	const handovers = 3
	return workload{
		name: "clean release",
		about: fmt.Sprintf("From the call of unlock, or resign, until the only one who has waited for %v to %v is granted; the median of %d.",
			settle, settle+maxPoll, handovers),
		kinds:   []Kind{Mutex, Election},
		metrics: []metric{{name: "hand-over, ms"}},
		measure: func(ctx context.Context, c *cell) ([]float64, error) {
			all, err := c.processes(ctx, 2, 2, true)
			if err != nil {
				return nil, err
			}
			h, err := all[0].Lock(ctx)
			if err != nil {
				return nil, fmt.Errorf("lock: %w", err)
			}
			var took []float64
			for i := range handovers {
				next := lockLater(ctx, all[(i+1)%2])
				time.Sleep(settle + rand.N(maxPoll)) // not in step with those who poll
				began := time.Now()
				if err := h.Unlock(ctx); err != nil {
					return nil, fmt.Errorf("unlock: %w", err)
				}
				g := <-next
				if g.err != nil {
					return nil, fmt.Errorf("lock: %w", g.err)
				}
				took = append(took, milliseconds(g.at.Sub(began)))
				h = g.hold
			}
			return []float64{quantile(took, 0.5)}, h.Unlock(ctx)
		},
	}
}

func crashWorkload() workload {
	return workload{
		name: "crash",
		about: "The holder's packets vanish without a word, as when its machine dies or a switch does, at a random moment between " +
			"two renewals. From then until the waiter is granted, and until the holder itself, which goes on running, is told that it may have lost the lock: " +
			"if that is later, both believe that they have it. Redsync and redislock do not renew, so they run out of their TTL anyway, and do not tell (—).",
		kinds:   []Kind{Mutex, Election},
		metrics: []metric{{name: "next owner in, s"}, {name: "holder told, s"}, {name: "both believe, s"}},
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
			return nil, errors.New("the holder was not told")
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
