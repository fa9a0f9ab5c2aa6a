// Consumer is a fleet that handles the messages of 64 partitions, and is rolled over while it works.
//
//	go run ./examples/consumer
//
// starts four processes, which share the partitions. Then each in turn is stopped and started again, as an update does
// it, and at last one is killed. Every partition has one owner at a time, its messages are handled in order, and each
// once. The program counts how many partitions move, and for how long they stand still.
//
// The part to copy is in consumer.go: Shards.Run, and a transaction that handles a message and counts it under the guard of
// the Hold. audit.go follows the counters in etcd. The program exits with 0 only if no message was left out or handled
// twice, and the update has moved no partition more than twice.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/session"
)

// ttl is short, so that nobody falls asleep; a service does well with the default of 15 s.
const ttl = 4 * time.Second

var program = stage.Program{Name: "consumer", Story: story, Roles: map[string]stage.Act{"consumer": consumer}}

func main() { program.Main() }

// consumer is a process that the story has started.
func consumer(ctx context.Context, e *stage.Etcd) error {
	var id string
	if err := e.Job(&id); err != nil {
		return err
	}
	sessions := session.Keep(e.Client, session.WithTTL(ttl))
	err := events{e.Client, e.Prefix}.consume(ctx, sessions, id)
	closing, cancel := context.WithTimeout(context.Background(), ttl)
	defer cancel()
	_ = sessions.Close(closing)
	return err
}

var nodes = []string{"node-1", "node-2", "node-3", "node-4"}

// show is the story's stage.
type show struct {
	*stage.Etcd
	queue    events
	sessions *session.Keeper // to look with; it creates none
	fleet    map[string]*stage.Process
	audit    audit
}

func story(ctx context.Context, e *stage.Etcd) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := &show{Etcd: e, queue: events{e.Client, e.Prefix}, sessions: session.Keep(e.Client), fleet: map[string]*stage.Process{}}
	s.audit.follow(ctx, s.queue)
	defer s.audit.reading.Wait()
	defer stop()

	e.Printf("Four processes start, and share %d partitions.\n\n", count)
	for _, id := range nodes {
		if err := s.start(ctx, id); err != nil {
			return err
		}
	}
	if err := s.settled(ctx, nodes); err != nil {
		return err
	}
	s.audit.since()

	e.Printf("\nEach is stopped and started again, one after the other.\n\n")
	for _, id := range nodes {
		s.fleet[id].Leave()
		if err := s.fleet[id].Wait(); err != nil {
			return err
		}
		e.Say("%s is stopped", id)
		if err := s.settled(ctx, without(id)); err != nil {
			return err
		}
		if err := s.start(ctx, id); err != nil {
			return err
		}
		if err := s.settled(ctx, nodes); err != nil {
			return err
		}
	}
	if err := s.audit.everywhere(ctx); err != nil {
		return err
	}
	moved, most, pause := s.audit.since()
	e.Printf("\n%-60s %d\n%-60s %d\n%-60s %.1f s\n\n", "partitions that have moved", moved, "most moves of one", most,
		"longest time without a message from a partition", pause.Seconds())
	if most > 2 {
		return fmt.Errorf("a partition has moved %d times", most)
	}

	e.Printf("One is killed. Its partitions stand still until its lease expires, %v.\n\n", ttl)
	if err := s.fleet["node-2"].Kill(); err != nil {
		return err
	}
	_ = s.fleet["node-2"].Wait()
	delete(s.fleet, "node-2")
	e.Say("node-2 gets SIGKILL")
	if err := s.settled(ctx, without("node-2")); err != nil {
		return err
	}
	if err := s.audit.everywhere(ctx); err != nil {
		return err
	}
	moved, most, pause = s.audit.since()
	e.Printf("\n%-60s %d\n%-60s %d\n%-60s %.1f s\n\n", "partitions that have moved", moved, "most moves of one", most,
		"longest time without a message from a partition", pause.Seconds())
	return s.finish(ctx)
}

// without returns the other nodes.
func without(id string) (others []string) {
	for _, other := range nodes {
		if other != id {
			others = append(others, other)
		}
	}
	return others
}

func (s *show) start(ctx context.Context, id string) (err error) {
	s.fleet[id], err = s.Start(ctx, id, "consumer", id)
	return err
}

// settled waits until the nodes, and no others, share all partitions evenly.
func (s *show) settled(ctx context.Context, nodes []string) error {
	for owners, err := range s.queue.partitions(s.sessions).Observe(ctx) {
		if err != nil {
			return err
		}
		shares := map[string]int{}
		for _, o := range owners {
			shares[o.ID]++
		}
		even, text := len(shares) == len(nodes), []string{}
		for _, id := range nodes {
			text = append(text, fmt.Sprintf("%s %d", id, shares[id]))
			even = even && shares[id] >= count/len(nodes) && shares[id] <= (count+len(nodes)-1)/len(nodes)
		}
		if even {
			s.Say("the shares are: %s", strings.Join(text, ", "))
			return nil
		}
	}
	return context.Cause(ctx)
}

// finish stops the fleet, and says what the audit has found.
func (s *show) finish(ctx context.Context) error {
	for _, p := range s.fleet {
		p.Leave()
	}
	for _, p := range s.fleet {
		if err := p.Wait(); err != nil {
			return err
		}
	}
	owners, err := s.queue.partitions(s.sessions).Owners(ctx)
	if err != nil {
		return err
	}
	for partition, o := range owners {
		if !o.Vacant() {
			return fmt.Errorf("partition %d is still owned by %s", partition, o.ID)
		}
	}
	if err := s.complete(ctx); err != nil {
		return err
	}
	s.audit.mu.Lock()
	defer s.audit.mu.Unlock()
	if len(s.audit.mistakes) > 0 {
		return errors.New(strings.Join(s.audit.mistakes, "\n"))
	}
	s.Printf("%d messages of %d partitions were handled, each once and in order.\n", s.audit.total, count)
	return nil
}

// complete waits until the audit has seen what is in etcd.
func (s *show) complete(ctx context.Context) error {
	for partition := range count {
		last, err := s.queue.last(ctx, partition)
		if err != nil {
			return err
		}
		for {
			s.audit.mu.Lock()
			seen := s.audit.last[partition].Message
			s.audit.mu.Unlock()
			if seen >= last {
				break
			}
			select {
			case <-time.After(pace / 10):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	return nil
}
