package session

import "time"

// WithMonotonicClock lets tests run in virtual time, which moves only Go's own
// clock.
func WithMonotonicClock() Option {
	return WithClock(monotonicClock())
}

// ClaimedPrefixes returns the size of the table behind Claim.
func (s *Session) ClaimedPrefixes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.slots)
}

// Sweeping reports whether the goroutine behind Discard exists.
func (s *Session) Sweeping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sweeping
}

// SystemClock is the clock of sessions that are not told otherwise.
func SystemClock() func() time.Duration { return systemClock() }

// AloneLimit is how many transactions may be under way before others collect.
const AloneLimit = aloneLimit
