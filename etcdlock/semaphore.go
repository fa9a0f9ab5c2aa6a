package etcdlock

import (
	"context"
	"errors"
	"iter"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// Semaphore is a lock with a number of permits, of which each holder takes one or more, all at once. It is strictly
// first come, first served: a waiter for many permits is not overtaken by later ones for few. The permits of a
// crashed holder are free after the TTL. As a [Locker] it is taken for one permit. It is safe for concurrent use.
//
// Its size is stored in etcd: the first use sets it, [Semaphore.Resize] changes it. Holders do not fence
// each other, since several hold at a time; the tokens of one slot do (see [WithSlots]).
//
// A [Mutex] of the same name takes all permits.
type Semaphore struct {
	single
	size int64
}

var _ Locker = (*Semaphore)(nil)

// NewSemaphore returns the semaphore of name with size permits. No request is made; the first call for a permit
// reports a size that differs from the stored one. It panics if size is not positive or src is nil, and with
// [AtPrefix]: no other program shares its queue.
func NewSemaphore(src session.Source, name string, size int64, opts ...Option) *Semaphore {
	if size <= 0 {
		panic("etcdlock: the size of a semaphore must be positive")
	}
	o := collect(aSemaphore, opts)
	if o.raw {
		panic("etcdlock: AtPrefix is not for " + aSemaphore)
	}
	return &Semaphore{newSingle(src, o, kindPermit, name), size}
}

// Acquire waits in line until it has n permits: one round trip and one raft entry if they are free,
// one more of each after a wait. Errors are as for [Mutex.Lock], and a [*SizeError] if the stored size
// is not the one given to NewSemaphore, or if n is less than 1 or more than the size.
func (s *Semaphore) Acquire(ctx context.Context, n int64) (*Hold, error) {
	return s.permits(ctx, "acquire", n, s.queue.JoinPermits)
}

// TryAcquire takes n permits only if it need not wait, and returns [ErrBusy] otherwise, after a single
// read. Under contention it may have to join the queue and leave it again to know.
func (s *Semaphore) TryAcquire(ctx context.Context, n int64) (*Hold, error) {
	return s.permits(ctx, "tryacquire", n, s.queue.TryPermits)
}

// Lock is Acquire of one permit.
func (s *Semaphore) Lock(ctx context.Context) (*Hold, error) { return s.Acquire(ctx, 1) }

// TryLock is TryAcquire of one permit.
func (s *Semaphore) TryLock(ctx context.Context) (*Hold, error) { return s.TryAcquire(ctx, 1) }

func (s *Semaphore) permits(ctx context.Context, op string, n int64, join func(context.Context, int64, int64) (*fairqueue.Ticket, error)) (*Hold, error) {
	return s.acquire(ctx, op, func(ctx context.Context) (*fairqueue.Ticket, error) {
		switch {
		case n < 1:
			return nil, &SizeError{Asked: n, Agreed: s.size, Weight: true}
		case n > 1 && s.opts.queue.Slots:
			return nil, errSlots
		}
		return join(ctx, n, s.size)
	})
}

var errSlots = errors.New("with slots only one permit can be taken at a time")

// Resize changes the number of permits for all users: users that gave a replaced size to NewSemaphore use the new
// one. If there are more permits, waiters get them at once, in order. If there are fewer, no permit is taken away,
// and none is granted until enough have been released; a waiter for more than there are gets a [*SizeError], at once
// if it is next in line, and within about 10 s otherwise. After such a change a waiter may get a free permit up to
// about 10 s late. It panics if size is not positive. One read and one transaction.
func (s *Semaphore) Resize(ctx context.Context, size int64) error {
	return s.change(ctx, "resize", func() error { return s.queue.Resize(ctx, size) })
}

// Forget removes the stored size, a key that stays in etcd when the semaphore is not in use. It is for
// names that are not used again. If a permit is held or waited for, the error wraps [ErrBusy]. One
// transaction.
func (s *Semaphore) Forget(ctx context.Context) error {
	return s.change(ctx, "forget", func() error { return s.queue.Forget(ctx) })
}

func (s *Semaphore) change(ctx context.Context, op string, change func() error) error {
	s.ready(ctx)
	err := s.err
	if err == nil {
		err = change()
	}
	return failed(op, s.name, err)
}

// Sizes yields the size, 0 before the first use, and then every change of it, until ctx ends. An error
// says that etcd refuses the read, and the loop goes on unless it is left; or that the client was
// closed, and the loop ends. One read and one watch, no session.
func (s *Semaphore) Sizes(ctx context.Context) iter.Seq2[int64, error] {
	s.ready(ctx)
	return func(yield func(int64, error) bool) {
		if s.err != nil {
			yield(0, failed("sizes", s.name, s.err))
			return
		}
		for size, err := range s.queue.Sizes(ctx) {
			if !yield(size, failed("sizes", s.name, err)) {
				return
			}
		}
	}
}

// Slot returns the number of a semaphore's permit, from 0 to size - 1, which no other holder has. ok
// is false for other holds, and for semaphores without [WithSlots].
func (h *Hold) Slot() (number int, ok bool) {
	number = h.bound().Slot
	return max(number, 0), number >= 0
}
