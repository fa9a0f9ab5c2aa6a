package session

import (
	"errors"
	"time"
)

// State is what a session knows of its lease.
type State int

const (
	// Live means that renewals are answered in time.
	Live State = iota + 1
	// AtRisk means that a renewal is overdue. The lease still holds, but will be lost at
	// the deadline if no answer comes. A good moment to stop starting things.
	AtRisk
	// Lost means that the deadline has passed or the lease is gone. Final.
	Lost
	// Closed means that Close was called before a loss. Final.
	Closed
)

func (s State) String() string {
	switch s {
	case Live:
		return "live"
	case AtRisk:
		return "at risk"
	case Lost:
		return "lost"
	case Closed:
		return "closed"
	}
	return "unknown"
}

// stateOf decides from how a session ended, if it did, and how long ago the
// last answered renewal was sent. Renewals leave at ttl/3, and the first attempt
// has timed out by ttl/2.
func stateOf(ended error, age, ttl time.Duration) State {
	switch {
	case errors.Is(ended, ErrLost):
		return Lost
	case ended != nil:
		return Closed
	case age > ttl/2:
		return AtRisk
	}
	return Live
}
