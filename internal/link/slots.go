package link

// Claim reserves the lowest number that is free under prefix in this session.
// Whoever builds keys from it and the lease gets a name that no other goroutine
// of this session uses at the same time, and that is used again as soon as it
// is free: deleted keys stay in etcd's index until a compaction, so a fresh name
// for each use would make every range over the prefix slower and slower.
//
// Give the number back with Free, once it is certain that the key is gone and
// that no request that could create it is still under way. Safe for concurrent
// use; no request is made.
func (l *Link) Claim(prefix string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	used := l.slots[prefix]
	for n, taken := range used {
		if !taken {
			used[n] = true
			return n
		}
	}
	l.slots[prefix] = append(used, true)
	return len(used)
}

// Free gives back a number that Claim returned for prefix.
func (l *Link) Free(prefix string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	used := l.slots[prefix]
	if n >= len(used) || !used[n] {
		panic("session: a number is given back that was not taken")
	}
	used[n] = false
	for len(used) > 0 && !used[len(used)-1] {
		used = used[:len(used)-1]
	}
	if len(used) == 0 {
		// The table must not grow with the number of prefixes ever used.
		delete(l.slots, prefix)
		return
	}
	l.slots[prefix] = used
}
