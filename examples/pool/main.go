// Pool is the story of a backend with a limited number of licences. It refuses requests when all are in
// use. A semaphore over all processes makes sure that it never has to.
//
//	go run ./examples/pool
//
// lets six workers in three processes use a backend with three licences, at first as they
// like, then with NewSemaphore and WithSlots. The number of a permit is the shard that its owner
// works on, so each shard has one worker at a time. A process is killed while both of its workers
// hold a permit: the permits, and with them the shards, come back when its lease has run out. The
// backend counts, and the program fails if it has seen too many.
//
// The part to copy is the first half of worker.go. It does not give up a permit before the backend
// has answered, because the backend counts until then.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/etcdlock/locks/examples/internal/stage"
)

const (
	licences  = 3
	processes = 3
	workers   = 2  // of each process
	requests  = 20 // for each process, until something happens
	columns   = 90
)

var program = stage.Program{
	Name:  "pool",
	Story: story,
	Roles: map[string]stage.Act{"unlimited": unlimited, "process": process},
}

func main() { program.Main() }

func story(ctx context.Context, e *stage.Etcd) error {
	e.Printf("%d workers in %d processes, and a backend with %d licences.\n", processes*workers, processes, licences)
	without, err := asTheyLike(ctx, e)
	if err != nil {
		return err
	}
	with, err := withSemaphore(ctx, e)
	if err != nil {
		return err
	}
	e.Printf("\n%-28s %8s %10s\n", "seen by the backend", "without", "semaphore")
	e.Printf("%-28s %8d %10d\n", "most users at a time", without.mostUsers, with.mostUsers)
	e.Printf("%-28s %8d %10d\n", "most at the same shard", without.mostAtShard, with.mostAtShard)
	e.Printf("%-28s %8d %10d\n", "served", without.served, with.served)
	e.Printf("%-28s %8d %10d\n", "refused", without.refused, with.refused)
	if with.mostUsers > licences || with.mostAtShard > 1 || with.refused > 0 {
		return errors.New("the semaphore has let in too many")
	}
	e.Printf("\nNever more than %d users, nobody refused, each shard with one worker at a time, crash included.\n"+
		"A permit is given back when its work has really ended; that of a dead process comes back after its TTL.\n", licences)
	return nil
}

// asTheyLike has all workers come at once.
func asTheyLike(ctx context.Context, e *stage.Etcd) (seen stats, err error) {
	e.Printf("\nAs they like: all come at the same time, and those are refused for whom there is no licence.\n")
	b := newBackend(licences, processes*workers)
	defer b.stop()
	crew, err := hire(ctx, e, "unlimited", b.URL)
	if err == nil {
		err = crew.wait()
	}
	b.look(func(s stats) { seen = s })
	if err == nil && seen.refused != processes*workers-licences {
		err = fmt.Errorf("%d were refused", seen.refused)
	}
	return seen, err
}

// withSemaphore has the workers take permits, and kills a process that holds two.
func withSemaphore(ctx context.Context, e *stage.Etcd) (seen stats, err error) {
	e.Printf("\nWith a semaphore of %d, %d requests of %v with each permit.\n\n", licences, batch, requestTime)
	b := newBackend(licences, 0)
	defer b.stop()
	crew, err := hire(ctx, e, "process", b.URL)
	if err != nil {
		return seen, err
	}
	use := sampling(b)
	defer use.stop()
	victim := crew[0]
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	for _, p := range crew[1:] {
		go func() { // ends with the process
			if err := p.Wait(); err != nil {
				fail(err)
			}
		}()
	}
	// served waits until each process, but perhaps the victim, has been served so many times more.
	served := func(of []*stage.Process) error {
		before := map[string]int{}
		b.look(func(s stats) { maps.Copy(before, s.servedTo) })
		return b.until(ctx, "everybody to be served", func(s stats) bool {
			return !slices.ContainsFunc(of, func(p *stage.Process) bool { return s.servedTo[p.Name] < before[p.Name]+requests })
		})
	}
	if err := served(crew); err != nil {
		return seen, err
	}
	e.Say("each process has been served %d times; %.0f %% of the licences have been in use", requests, use.percent())
	b.setStuck(victim.Name)
	var shards []int
	err = b.until(ctx, victim.Name+" to hold two permits", func(s stats) bool {
		shards = slices.Sorted(slices.Values(s.stuckAt))
		return len(shards) == workers
	})
	if err != nil {
		return seen, err
	}
	if err := victim.Kill(); err != nil {
		return seen, err
	}
	killed := time.Now()
	e.Say("%s gets SIGKILL while its workers are at the shards %v", victim.Name, shards)
	if victim.Wait() == nil {
		return seen, fmt.Errorf("%s was killed and ended well", victim.Name)
	}
	err = b.until(ctx, "the shards to be worked on", func(s stats) bool {
		return s.gone(victim.Name) && s.users == licences
	})
	if err != nil {
		return seen, err
	}
	e.Say("its permits have come back after %v; others work on these shards (TTL: %v)",
		time.Since(killed).Round(10*time.Millisecond), ttl)
	if err := served(crew[1:]); err != nil {
		return seen, err
	}
	e.Say("users at a time, looked at every %v:", sampleEvery)
	for line := range use.lines(columns) {
		e.Printf("          %s\n", line)
	}
	for _, p := range crew {
		p.Leave()
	}
	if err := crew[1:].wait(); err != nil {
		return seen, err
	}
	b.look(func(s stats) { seen = s })
	return seen, items(ctx, e, seen)
}

// items compares how far the shards are with what the backend has served.
func items(ctx context.Context, e *stage.Etcd, seen stats) error {
	for shard := range licences {
		answer, err := e.Client.Get(ctx, shardKey(e, shard))
		if err != nil {
			return err
		}
		done := ""
		for _, kv := range answer.Kvs {
			done = string(kv.Value)
		}
		e.Say("shard %d: %s items done, %d requests served", shard, done, seen.servedShard[shard])
		// A process may die, or lose its permit, between the answer and the note of it.
		if n, err := strconv.Atoi(done); err != nil || n > seen.servedShard[shard] {
			return fmt.Errorf("shard %d: %q items with %d requests", shard, done, seen.servedShard[shard])
		}
	}
	return nil
}

type crew []*stage.Process

func hire(ctx context.Context, e *stage.Etcd, role, url string) (crew, error) {
	var c crew
	for i := range processes {
		name := fmt.Sprintf("%s-%d", role, i+1)
		p, err := e.Start(ctx, name, role, config{name, workers, licences, url})
		if err != nil {
			return c, err
		}
		c = append(c, p)
	}
	return c, nil
}

func (c crew) wait() (err error) {
	for _, p := range c {
		err = errors.Join(err, p.Wait())
	}
	return err
}
