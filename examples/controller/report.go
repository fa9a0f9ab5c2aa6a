package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

// width of the timeline's bars, in characters.
const width = 40

// report prints who led when, and what the leaders wrote, and fails if that is not as promised.
func (s *show) report(ctx context.Context) error {
	writes, err := s.history(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first, last := s.terms[0].from, s.terms[len(s.terms)-1].until
	place := func(at time.Time) int { return int(float64(width) * float64(at.Sub(first)) / float64(last.Sub(first))) }
	s.e.Printf("%-8s %7s  %-*s %-13s %-14s %s\n", "leader", "token", width+1, "time", "ended by", "next led after", "writes")
	count := map[etcdlock.Token]int{}
	for _, w := range writes {
		count[w.Token]++
	}
	for i, t := range s.terms {
		from := place(t.from)
		bar := strings.Repeat(" ", from) + strings.Repeat("#", max(1, place(t.until)-from))
		next := "-"
		if i < len(s.terms)-1 {
			next = t.gap.Round(time.Millisecond).String()
		}
		s.e.Printf("%-8s %7d  %-*s %-13s %-14s %d\n", t.Value, t.Token, width+1, bar, t.why, next, count[t.Token])
	}
	if err := errors.Join(checkWrites(writes, s.terms), s.checkStory()); err != nil {
		return err
	}
	s.e.Printf("\n%d terms, %d writes: each by the leader of its time, and none of an earlier term after one of a later.\n"+
		"The stuck leader's write was refused by its token's guard (Term.Txn), not by anybody's clock.\n"+
		"Let the loop obey its context, write with the Term, and leave the rest to Election.Run.\n", len(s.terms), len(writes))
	return nil
}

// history returns every write that took effect, in order.
func (s *show) history(ctx context.Context) ([]fleet, error) {
	now, err := s.e.Client.Get(ctx, s.e.Prefix+"actual")
	if err != nil {
		return nil, err
	}
	if len(now.Kvs) == 0 {
		return nil, errors.New("nobody has written anything")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var writes []fleet
	for response := range s.e.Client.Watch(ctx, s.e.Prefix+"actual", clientv3.WithRev(now.Kvs[0].CreateRevision)) {
		for _, event := range response.Events {
			var w fleet
			if err := json.Unmarshal(event.Kv.Value, &w); err != nil {
				return nil, err
			}
			writes = append(writes, w)
			if event.Kv.ModRevision == now.Kvs[0].ModRevision {
				return writes, nil
			}
		}
		if err := response.Err(); err != nil {
			return nil, fmt.Errorf("reading the history: %w", err)
		}
	}
	return nil, context.Cause(ctx)
}

// checkWrites makes sure that each write was a leader's, and made one step from the one before.
func checkWrites(writes []fleet, terms []term) error {
	size := 0
	if !slices.IsSortedFunc(writes, func(a, b fleet) int { return cmp.Compare(a.Token, b.Token) }) {
		return fmt.Errorf("a deposed leader has written: %v", writes)
	}
	for _, w := range writes {
		led := slices.ContainsFunc(terms, func(t term) bool { return t.Token == w.Token && t.Value == w.By })
		if !led || w.Size != size+1 {
			return fmt.Errorf("size %d was followed by %+v", size, w)
		}
		size = w.Size
	}
	return nil
}

// checkStory makes sure that the replicas led in the order of the line, and that the stuck one, and
// nobody else, was refused.
func (s *show) checkStory() error {
	var leaders []string
	for _, t := range s.terms {
		leaders = append(leaders, t.Value)
	}
	if want := []string{"node-1", "node-2", "node-3", "node-1", "node-2"}; !slices.Equal(leaders, want) {
		return fmt.Errorf("led: %v, not %v", leaders, want)
	}
	for _, line := range s.lines {
		if strings.Contains(line, "is refused") && !strings.Contains(line, "node-3") {
			return fmt.Errorf("only node-3 should have been refused: %s", line)
		}
	}
	return nil
}
