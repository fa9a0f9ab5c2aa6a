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

// report prints the terms of the leaders and their writes. It fails if a promise was broken.
func (s *show) report(ctx context.Context) error {
	writes, err := s.history(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first, last := s.terms[0].from, s.terms[len(s.terms)-1].until
	place := func(at time.Time) int { return int(float64(width) * float64(at.Sub(first)) / float64(last.Sub(first))) }
	count := map[etcdlock.Token]int{}
	for _, w := range writes {
		count[w.Token]++
	}
	s.e.Printf("%-8s %7s  %-12s %-*s  %-13s %s\n", "leader", "token", "led after", width+1, "time", "ended by", "writes")
	for _, t := range s.terms {
		from, after := place(t.from), "-"
		if t.after > 0 {
			after = t.after.String()
		}
		bar := strings.Repeat(" ", from) + strings.Repeat("#", max(1, place(t.until)-from))
		s.e.Printf("%-8s %7d  %-12s %-*s  %-13s %d\n", t.Value, t.Token, after, width+1, bar, t.why, count[t.Token])
	}
	if err := errors.Join(checkWrites(writes, s.terms), s.checkStory()); err != nil {
		return err
	}
	s.e.Printf("\n%d terms, %d writes: each by the leader of its time, and none of an earlier term after one of a later.\n"+
		"The stuck leader's late write was refused: one of Term.Txn takes effect only while the term exists.\n"+
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

// checkStory makes sure that exactly one write was refused: that of the leader that was stuck.
func (s *show) checkStory() error {
	stuck := s.terms[slices.IndexFunc(s.terms, func(t term) bool { return t.why == "ForceRelease" })].Value
	refused := 0
	for _, line := range s.lines {
		if strings.Contains(line, "is refused") {
			refused++
			if !strings.Contains(line, stuck) {
				return fmt.Errorf("only %s should have been refused: %s", stuck, line)
			}
		}
	}
	if refused != 1 {
		return fmt.Errorf("%d writes were refused", refused)
	}
	return nil
}
