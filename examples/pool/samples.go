package main

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"
)

const sampleEvery = 50 * time.Millisecond

// samples are how many users the backend has had, at regular intervals.
type samples struct {
	stop func() // returns when there will be no more

	mu    sync.Mutex // guards users
	users []int
}

func sampling(b *backend) *samples {
	ctx, cancel := context.WithCancel(context.Background())
	s := &samples{}
	var group sync.WaitGroup
	s.stop = func() { cancel(); group.Wait() }
	group.Go(func() {
		ticker := time.NewTicker(sampleEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			b.look(func(seen stats) {
				s.mu.Lock()
				defer s.mu.Unlock()
				if seen.served > 0 { // they have begun
					s.users = append(s.users, seen.users)
				}
			})
		}
	})
	return s
}

// percent returns how much of the licences has been in use so far.
func (s *samples) percent() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := 0
	for _, n := range s.users {
		sum += n
	}
	return 100 * float64(sum) / float64(licences*max(1, len(s.users)))
}

// lines returns a digit for each sample, so many in a line.
func (s *samples) lines(columns int) iter.Seq[string] {
	s.mu.Lock()
	defer s.mu.Unlock()
	var digits []byte
	for _, n := range s.users {
		digits = append(digits, byte('0'+n))
	}
	return func(yield func(string) bool) {
		for line := range slices.Chunk(digits, columns) {
			if !yield(string(line)) {
				return
			}
		}
	}
}

// until looks again and again, as a monitor does.
func (b *backend) until(ctx context.Context, what string, enough func(stats) bool) error {
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for {
		ok := false
		b.look(func(s stats) { ok = enough(s) })
		if ok {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
}
