package session

import "context"

// turnLimit is how many requests that cost etcd much a session makes at a time.
const turnLimit = 2

// InTurn runs f, a request that costs etcd much, such as a read of a long queue, when it is its
// turn: a session makes two at a time, in about the order in which they come. When thousands come
// together etcd would otherwise be so busy that leases are not renewed in time. It returns f's
// error, or that with which ctx or the session ended before. Safe for concurrent use.
func (s *Session) InTurn(ctx context.Context, f func() error) error {
	needContext(ctx)
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

// spawn runs f in a goroutine of the session, which Close waits for, unless the session is over. Its
// context ends with the session. The caller has locked mu.
func (s *Session) spawn(f func(context.Context)) (started bool) {
	if s.ctx.Err() != nil {
		return false
	}
	s.running.Go(func() { f(s.ctx) })
	return true
}
