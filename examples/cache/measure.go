package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/session"
)

const (
	processes = 4
	readers   = 3 // in each
	products  = 12
	period    = time.Second            // for each way
	pause     = 150 * time.Millisecond // of the writer after every second change of all prices
	lookup    = 10 * time.Millisecond  // of a price, in the database
)

// report is what a process has seen.
type report struct {
	Reads, Lookups, Old int64
	Latest              time.Duration // that an old price was read, after it had been replaced
}

func (r *report) add(other report) {
	r.Reads += other.Reads
	r.Lookups += other.Lookups
	r.Old += other.Old
	r.Latest = max(r.Latest, other.Latest)
}

func measure(ctx context.Context, e *stage.Etcd, sessions *session.Keeper) error {
	e.Printf("4. %d processes read, one changes %d prices every now and then; the database takes %v to answer\n\n",
		processes, products, lookup)
	e.Printf("%-8s %9s %10s %16s %11s\n", "", "reads/s", "look-ups", "old prices read", "for up to")
	var crew []*stage.Process
	for i := range processes {
		name := fmt.Sprintf("reader-%d", i+1)
		p, err := e.Start(ctx, name, "reader", nil)
		if err != nil {
			return err
		}
		defer p.Leave()
		crew = append(crew, p)
	}
	for _, w := range ways {
		all, err := w.measure(ctx, e, sessions, crew)
		if err != nil {
			return err
		}
		e.Printf("%-8s %9.0f %10d %16d %9.2f s\n", w.name, float64(all.Reads)/period.Seconds(), all.Lookups, all.Old, all.Latest.Seconds())
		if w.locked && all.Old > 0 {
			return fmt.Errorf("%s: %d reads had an old price", w.name, all.Old)
		}
	}
	return nil
}

// measure is the writer. The price of everything is the number of the change that it is from.
func (w way) measure(ctx context.Context, e *stage.Etcd, sessions *session.Keeper, crew []*stage.Process) (all report, err error) {
	p := w.open(e, sessions, "measure")
	change := func(price int) error {
		prices := make(map[string]int, products)
		for i := range products {
			prices[product(i)] = price
		}
		err := again(ctx, func() error { return w.set(p, ctx, prices) })
		if err != nil {
			return err
		}
		_, err = e.Client.Put(ctx, p.prefix+"changed", strconv.Itoa(price))
		return err
	}
	if err := change(0); err != nil {
		return all, err
	}
	if err := e.Meet(ctx, w.name, processes+1); err != nil {
		return all, err
	}
	for price, end := 1, time.Now().Add(period); time.Now().Before(end); price++ {
		if err := change(price); err != nil {
			return all, err
		}
		if price%2 == 1 {
			time.Sleep(lookup / 2) // the next one comes while the cache is being filled again
		} else {
			time.Sleep(pause)
		}
	}
	for _, process := range crew {
		line, ok := <-process.Lines
		if !ok {
			return all, errors.Join(errors.New(process.Name+" has left early"), process.Wait())
		}
		var its report
		if err := json.Unmarshal([]byte(line), &its); err != nil {
			return all, fmt.Errorf("%s: %w", process.Name, err)
		}
		all.add(its)
	}
	return all, nil
}

// reader is what the processes do: in each way, several readers at a time.
func reader(ctx context.Context, e *stage.Etcd) error {
	sessions := session.Keep(e.Client)
	defer sessions.Close(ctx)
	if _, err := sessions.Session(ctx); err != nil { // now, not in the time that is measured
		return err
	}
	for _, w := range ways {
		all, err := w.read(ctx, e, sessions)
		if err != nil {
			return err
		}
		line, err := json.Marshal(all)
		if err != nil {
			return err
		}
		e.Printf("%s\n", line)
	}
	return nil
}

func (w way) read(ctx context.Context, e *stage.Etcd, sessions *session.Keeper) (all report, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of the watch
	var lookups atomic.Int64
	p := w.open(e, sessions, "measure")
	p.answer = func(ctx context.Context, _ int) error {
		lookups.Add(1)
		select {
		case <-time.After(lookup):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	changes := history{at: make(map[int]time.Time)}
	watch := e.Client.Watch(ctx, p.prefix+"changed")
	go changes.follow(watch)
	if err := e.Meet(ctx, w.name, processes+1); err != nil {
		return all, err
	}
	end := time.Now().Add(period)
	reports, errs := make([]report, readers), make([]error, readers)
	var reading sync.WaitGroup
	for i := range readers {
		reading.Go(func() {
			for errs[i] == nil && time.Now().Before(end) {
				errs[i] = again(ctx, func() error { return w.readOne(ctx, p, &changes, &reports[i]) })
			}
		})
	}
	reading.Wait()
	for _, r := range reports {
		all.add(r)
	}
	all.Lookups = lookups.Load()
	return all, errors.Join(errs...)
}

func (w way) readOne(ctx context.Context, p *Prices, changes *history, r *report) error {
	now, latest := time.Now(), changes.last()
	price, err := w.get(p, ctx, product(rand.N(products)))
	if err != nil {
		return err
	}
	r.Reads++
	if price < latest {
		r.Old++
		r.Latest = max(r.Latest, now.Sub(changes.when(price+1)))
	}
	return nil
}

// history has the changes that were completed, as far as this process knows. It learns of them a bit
// late, so a price that is older than its last change is really outdated.
type history struct {
	mu     sync.Mutex // guards the rest
	at     map[int]time.Time
	latest int
}

func (h *history) follow(watch clientv3.WatchChan) {
	for answer := range watch {
		for _, event := range answer.Events {
			if price, err := strconv.Atoi(string(event.Kv.Value)); err == nil {
				h.mu.Lock()
				h.at[price], h.latest = time.Now(), price
				h.mu.Unlock()
			}
		}
	}
}

func (h *history) last() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.latest
}

func (h *history) when(price int) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at[price]
}

func product(i int) string { return fmt.Sprintf("product-%d", i) }

// again repeats f while it fails because a lock was lost.
func again(ctx context.Context, try func() error) error {
	for {
		err := try()
		if ctx.Err() != nil || !errors.Is(err, etcdlock.ErrLost) && !errors.Is(err, etcdlock.ErrOutcomeUnknown) {
			return err
		}
	}
}
