package session

import "context"

// turnLimit is how many requests that cost etcd much a session makes at a time.
const turnLimit = 2

// InTurn runs f, a request that costs etcd much, such as a read of a long queue, when it is its
// turn: a session makes two at a time, in about the order in which they come. When thousands come
// together etcd would otherwise be so busy that leases are not renewed in time. It returns f's
// error, or that with which ctx or the session ended before. Safe for concurrent use.
func (s *Session) InTurn(ctx context.Context, f func() error) error {
	select {
	case s.turns <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
	defer func() { <-s.turns }()
	return f()
}

// Go runs f in a goroutine of the session, unless that is over. Its context ends with the session,
// and Close waits for it. For what should be done but nobody waits for. Safe for concurrent use.
func (s *Session) Go(f func(context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spawn(f)
}

// spawn is Go for those who have locked mu, and says whether f runs.
func (s *Session) spawn(f func(context.Context)) bool {
	if s.ctx.Err() != nil {
		return false
	}
	s.running.Go(func() { f(s.ctx) })
	return true
}
