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

// Unsettled counts what callers have given up and is under way.
func (s *Session) Unsettled() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.underWay
}

// UnsettledLimit is how much of that there may be before Admit waits.
const UnsettledLimit = unsettledLimit

// SystemClock is the clock of sessions that are not told otherwise.
func SystemClock() func() time.Duration { return systemClock() }

// AloneLimit is how many transactions may be under way before others collect.
const AloneLimit = aloneLimit

// ShareAll makes s send everything as shared requests, also what is alone.
func (s *Session) ShareAll() { s.coalescers.writes.alone = 0 }

// Epochs counts the epochs that the session remembers.
func (s *Session) Epochs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.epochs)
}
