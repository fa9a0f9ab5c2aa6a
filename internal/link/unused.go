package link

import "context"

// Retire says that the session gets no new callers. A ticket that is only kept for later ones is given up.
func (l *Link) Retire() { l.retire() }

// Retired returns a context that ends with Retire, or with the session.
func (l *Link) Retired() context.Context { return l.retired }

// AwaitUnused waits until the session ends, or no caller uses a key: no ticket waits, owns, or is being removed. Keys
// in doubt are not used, since they go with the lease for certain. Nor are those that DiscardAfter keeps for a time. It
// returns ctx's error.
func (l *Link) AwaitUnused(ctx context.Context) error {
	for {
		l.mu.Lock()
		if l.used > 0 && l.unused == nil {
			l.unused = make(chan struct{})
		}
		used, unused := l.used, l.unused
		l.mu.Unlock()
		if used <= 0 {
			return nil
		}
		select {
		case <-unused:
		case <-l.ctx.Done():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// use adds n to the numbers in use. The caller has locked mu.
func (l *Link) use(n int) {
	l.used += n
	if l.used <= 0 && l.unused != nil {
		close(l.unused)
		l.unused = nil
	}
}

// setAside says that n claimed numbers are not used, or are used again.
func (l *Link) setAside(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.use(-n)
}
