package etcdlock

import "time"

// WaitingLocally tells how many goroutines wait for m, one of them in etcd's queue perhaps.
func WaitingLocally(m *Mutex) int {
	m.line.mu.Lock()
	defer m.line.mu.Unlock()
	if m.line.taken && m.line.current == nil {
		return len(m.line.waiting) + 1
	}
	return len(m.line.waiting)
}

// OwnsLocally reports whether m's line owns the lock, as far as it has heard.
func OwnsLocally(m *Mutex) bool {
	m.line.mu.Lock()
	defer m.line.mu.Unlock()
	return m.line.current != nil
}

// WithRecheck sets how often FollowAll compares what it has with etcd.
func WithRecheck(d time.Duration) Option { return optionFunc(func(o *options) { o.recheck = d }) }
