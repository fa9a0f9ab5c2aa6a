package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

var hotMetrics = []metric{
	{name: "grants/s", higher: true},
	{name: "hand-over p50, ms"},
	{name: "p99, ms"},
	{name: "to another, %", plain: true},
	{name: "longest wait, ms"},
}

func hotWorkload(contenders []int) workload {
	return workload{
		name: "hot lock",
		about: "Contenders, each with a session of its own and on at most 16 clients, take one lock as often as they can. " +
			"A hand-over is from the call of unlock to the return of the next grant, to any contender: " +
			"where the same contender gets it again before others have looked, hand-overs are short and others wait.",
		param: "contenders", params: contenders,
		kinds:   []Kind{Mutex},
		metrics: hotMetrics,
		chart:   &chartOf{title: "Grants of a hot lock per second", metric: 0, logY: true},
		measure: func(ctx context.Context, c *cell) ([]float64, error) {
			all, err := c.processes(ctx, min(c.param, maxClients), c.param, true)
			if err != nil {
				return nil, err
			}
			return contend(ctx, c, all)
		},
	}
}

func localWorkload() workload {
	return workload{
		name: "local",
		about: "8 processes of 8 goroutines each take one lock as often as they can. The goroutines of a process share " +
			"a client, a session and a lock, if the peer allows that; with etcd's package each has a session of its own.",
		kinds:   []Kind{Mutex},
		metrics: hotMetrics,
		measure: func(ctx context.Context, c *cell) ([]float64, error) {
			all, err := c.processes(ctx, 8, 64, false)
			if err != nil {
				return nil, err
			}
			return contend(ctx, c, all)
		},
	}
}

var errTwo = errors.New("two had the lock at once")

// drain is how long contenders that wait at the end of a slice have for their last turn. If it
// passes, that is no error: a waiter that polls may be unlucky for long.
const drain = 3 * time.Second

// contest is what contenders find out about a lock while they have it.
type contest struct {
	n      int // contenders
	slice  time.Duration
	inside atomic.Int32
	end    atomic.Pointer[time.Time] // of the slice; nil before it

	// Guarded by the lock that is measured.
	first     time.Time // grant
	grants    int       // before the slice
	released  time.Time
	last      int // contender
	another   int
	handovers []float64 // in ms
	longest   time.Duration
}

// contend has all take the lock in turn for a slice.
func contend(ctx context.Context, c *cell, all []Locker) ([]float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &contest{n: len(all), slice: c.options.slice}
	err := parallel(ctx, len(all), len(all), func(ctx context.Context, i int) error {
		for {
			asked := time.Now()
			h, err := all[i].Lock(ctx)
			if err != nil {
				return t.unlessOver(fmt.Errorf("lock: %w", err))
			}
			over, err := t.granted(i, asked, cancel)
			if err != nil {
				return err
			}
			t.inside.Add(-1)
			t.released = time.Now()
			if err := h.Unlock(ctx); err != nil {
				return t.unlessOver(fmt.Errorf("unlock: %w", err))
			}
			if over {
				return nil
			}
		}
	})
	if err := t.unlessOver(err); err != nil {
		return nil, err
	}
	return []float64{
		float64(len(t.handovers)) / t.slice.Seconds(),
		quantile(t.handovers, 0.5),
		quantile(t.handovers, 0.99),
		100 * float64(t.another) / float64(len(t.handovers)),
		milliseconds(t.longest),
	}, nil
}

// granted counts a grant, and says whether the slice is over. That begins when there were as
// many grants as there are contenders, since joining all at once is the herd's workload, but
// no later than a slice after the first.
func (t *contest) granted(i int, asked time.Time, stop func()) (over bool, err error) {
	now := time.Now()
	if t.inside.Add(1) != 1 {
		return true, errTwo
	}
	defer func() { t.last = i }()
	if end := t.end.Load(); end != nil {
		over = now.After(*end)
		t.longest = max(t.longest, now.Sub(asked))
		if !over {
			t.handovers = append(t.handovers, milliseconds(now.Sub(t.released)))
			if t.last != i {
				t.another++
			}
		}
		return over, nil
	}
	if t.grants++; t.grants == 1 {
		t.first = now
	}
	if t.grants >= t.n || now.Sub(t.first) >= t.slice {
		end := now.Add(t.slice)
		t.end.Store(&end)
		time.AfterFunc(t.slice+drain, stop)
	}
	return false, nil
}

// unlessOver is err, unless the slice is over and the error that of a last turn.
func (t *contest) unlessOver(err error) error {
	if errors.Is(err, errTwo) {
		return err
	}
	if end := t.end.Load(); end != nil && time.Now().After(*end) {
		return nil
	}
	return err
}
