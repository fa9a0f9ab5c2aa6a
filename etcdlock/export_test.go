package etcdlock

import "time"

// WaitingLocally tells how many goroutines wait for m, one of them in etcd's queue perhaps.
func WaitingLocally(m *Mutex) int {
	waiting := int(m.line.waiting.Load())
	if len(m.line.turn) == 0 && !OwnsLocally(m) {
		waiting++
	}
	return waiting
}

// OwnsLocally reports whether m's line owns the lock, as far as it has heard.
func OwnsLocally(m *Mutex) bool {
	return m.line.owns()
}

// HandToNobody hands the lock of m's holder on to a waiter that has just left.
func HandToNobody(m *Mutex) {
	o := m.line.current.Load()
	o.held.Store(false)
	m.line.hand(o)
}

// WithRecheck sets how often FollowAll compares what it has with etcd.
func WithRecheck(d time.Duration) Option { return optionFunc(func(o *options) { o.recheck = d }) }
