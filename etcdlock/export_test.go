package etcdlock

// WaitingLocally tells how many goroutines wait in m's memory.
func WaitingLocally(m *Mutex) int {
	m.line.mu.Lock()
	defer m.line.mu.Unlock()
	return len(m.line.waiting)
}

// OwnsLocally reports whether m's line owns the lock, as far as it has heard.
func OwnsLocally(m *Mutex) bool {
	m.line.mu.Lock()
	defer m.line.mu.Unlock()
	return m.line.current != nil
}
