// Cron is the story of a job that has to run once per tick. Every machine has the timer, so that the job also
// runs when one of them is down.
//
//	go run ./examples/cron
//
// starts three processes with the same schedule and different clocks, and kills one in the middle of a
// run. Then it verifies that each tick ran at most once, and that all ran exactly once, some
// of them late, except that of the killed process. It shows first why a lock alone is not enough.
//
// The part to copy is in schedule.go. TryLock refuses all processes but the first, and
// WithMinHold those whose clocks are behind. The record in etcd, written with the hold's Txn
// before the job, makes it at most once for any difference of clocks. It also shows the
// next process which ticks were missed until the lease of a dead holder had
// expired. Nothing can promise exactly once for a job whose process may die in the middle.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/session"
)

const (
	every   = 500 * time.Millisecond // a cron job would have a minute, and all the others so much longer
	apart   = 60 * time.Millisecond  // of clocks
	minHold = 300 * time.Millisecond
	ttl     = 2 * time.Second
	jobTime = 20 * time.Millisecond
	hangs   = 4 // the tick in which a process is killed

	inTheMiddle = "is in the middle of it"
)

var program = stage.Program{Name: "cron", Story: story, Roles: map[string]stage.Act{"node": node}}

func main() { program.Main() }

// releaseTimeout bounds the clean-up after a run, whose context may have ended.
const releaseTimeout = 3 * time.Second

// config is what a process gets at its start.
type config struct {
	Name   string
	Epoch  time.Time
	Offset time.Duration // of its clock
}

// node is a process with the schedule.
func node(ctx context.Context, e *stage.Etcd) (err error) {
	var c config
	if err := e.Job(&c); err != nil {
		return err
	}
	sessions := session.Keep(e.Client, session.WithTTL(ttl))
	defer func() { err = errors.Join(err, closing(sessions)) }()
	s := &schedule{
		name: c.Name, epoch: c.Epoch, every: every, say: e.Say, client: e.Client, prefix: e.Prefix + "run/",
		clock: func() time.Time { return time.Now().Add(c.Offset) },
		lock: etcdlock.NewMutex(sessions, "report", etcdlock.WithNamespace(e.Prefix+"locks"),
			etcdlock.WithLabel(c.Name), etcdlock.WithMinHold(minHold)),
	}
	s.job = func(held context.Context, tick int) error { return work(held, ctx.Done(), e, c, tick) }
	return s.run(ctx)
}

// work is the job. What it does to the world cannot be taken back, nor refused by etcd.
func work(ctx context.Context, leaving <-chan struct{}, e *stage.Etcd, c config, tick int) error {
	effect := fmt.Sprintf("%seffect/%012d/%s/%d", e.Prefix, tick, c.Name, time.Now().UnixNano())
	if _, err := e.Client.Put(ctx, effect, ""); err != nil {
		return err
	}
	if tick == hangs {
		e.Say("tick %3d  %s %s", tick, c.Name, inTheMiddle)
		select {
		case <-ctx.Done():
		case <-leaving:
		}
		return errors.New("what hung has come to an end")
	}
	time.Sleep(jobTime)
	e.Say("tick %3d  %s has done it (its clock: %+d ms)", tick, c.Name, c.Offset.Milliseconds())
	return nil
}

func story(ctx context.Context, e *stage.Etcd) error {
	if err := lockAlone(ctx, e); err != nil {
		return err
	}
	e.Printf("\nThree processes, a tick every %v, a minimum hold of %v, TTL %v. In tick %d the one that runs it is killed.\n\n",
		every, minHold, ttl, hangs)
	w, err := newWatch(ctx, e)
	if err != nil {
		return err
	}
	nodes := map[string]*stage.Process{}
	middle := make(chan string, 1)         // the process that is in the middle of the tick in which it hangs
	silent := map[string]<-chan struct{}{} // closed when a process has said its last
	epoch := time.Now().Truncate(every).Add(every)
	for i, offset := range []time.Duration{0, apart, -apart} {
		c := config{fmt.Sprintf("node-%d", i+1), epoch, offset}
		p, err := e.Start(ctx, c.Name, "node", c)
		if err != nil {
			return err
		}
		quiet := make(chan struct{})
		nodes[c.Name], silent[c.Name] = p, quiet
		go func() { // ends with the process
			defer close(quiet)
			for line := range p.Lines {
				e.Printf("%s\n", line)
				if strings.HasSuffix(line, inTheMiddle) {
					select {
					case middle <- c.Name:
					default: // the story goes on about the first
					}
				}
			}
		}()
	}
	var victim string
	select {
	case victim = <-middle:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := nodes[victim].Kill(); err != nil {
		return err
	}
	<-silent[victim]
	if nodes[victim].Wait() == nil {
		return fmt.Errorf("%s was killed and ended well", victim)
	}
	delete(nodes, victim)
	e.Say("          %s is killed; until its lease has run out, every other process finds the lock taken", victim)
	caught, err := w.await(func(r record) bool { return r.Tick > hangs && !r.Late && r.Done })
	if err != nil {
		return err
	}
	e.Say("          %s has made up for what was missed", caught.By)
	if _, err = w.await(func(r record) bool { return r.Tick > caught.Tick+2 && r.Done }); err != nil {
		return err
	}
	for _, p := range nodes {
		p.Leave()
	}
	for name, p := range nodes {
		<-silent[name]
		err = errors.Join(err, p.Wait())
	}
	return errors.Join(err, verify(ctx, e, epoch, victim))
}

// lockAlone shows two machines at the same tick, one after the other because of their clocks.
func lockAlone(ctx context.Context, e *stage.Etcd) (err error) {
	e.Printf("Two machines, one tick. The second's clock is behind: it comes when the first is done.\n\n")
	sessions := session.Keep(e.Client, session.WithTTL(ttl))
	defer func() { err = errors.Join(err, closing(sessions)) }()
	for _, way := range []struct {
		called string
		hold   time.Duration
		runs   int
	}{{"TryLock", 0, 2}, {"TryLock, WithMinHold", time.Minute, 1}} {
		runs := 0
		for range 2 {
			lock := etcdlock.NewMutex(sessions, way.called, etcdlock.WithNamespace(e.Prefix+"tried"), etcdlock.WithMinHold(way.hold))
			h, err := lock.TryLock(ctx)
			switch {
			case errors.Is(err, etcdlock.ErrBusy):
				continue
			case err != nil:
				return err
			}
			runs++
			if err := h.Unlock(ctx); err != nil {
				return err
			}
		}
		e.Printf("  %-22s runs of the job: %d\n", way.called, runs)
		if runs != way.runs {
			return fmt.Errorf("%s: %d runs, not %d", way.called, runs, way.runs)
		}
	}
	return nil
}

// closing bounds the end of sessions; if etcd does not answer, their leases run out.
func closing(sessions *session.Keeper) error {
	bounded, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	return sessions.Close(bounded)
}
