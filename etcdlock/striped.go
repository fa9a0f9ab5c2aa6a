package etcdlock

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// Striped is a number of exclusive locks, the stripes, for what would otherwise contend for one:
// either by key, so that few keys share a lock ([Striped.For]), or for something that has
// been split into equal segments, like the stock of a shop ([Striped.Any], [Striped.AnyN]).
// All ways of taking a stripe exclude each other. It is safe for concurrent use.
//
// Stripe i is the lock called name/i: a Mutex of that name is the same lock.
type Striped struct {
	lock
	stripes []*Mutex
}

// NewStriped returns the stripes of name, numbered from 0. All users must give the same
// number of them: with another, a key has another stripe. It panics if the
// number is not positive or src is nil.
func NewStriped(src session.Source, name string, stripes int, opts ...Option) *Striped {
	if stripes <= 0 {
		panic("etcdlock: the number of stripes must be positive")
	}
	o := collect("a Striped", opts)
	l, prefix := newLock(src, o, name, false)
	l.covers[0].prefix = "" // there is no lock of that name
	s := &Striped{lock: l, stripes: make([]*Mutex, stripes)}
	queue := fairqueue.New(src, prefix, o.queue...)
	for i := range s.stripes {
		m := &Mutex{}
		m.lock, prefix = newLock(src, o, name+"/"+strconv.Itoa(i), false)
		m.queue = queue.At(prefix)
		if s.err == nil {
			s.err = m.err
		}
		s.stripes[i] = m
	}
	for _, m := range s.stripes {
		m.err = s.err // "" is not a name, though "/0" is
	}
	return s
}

// Stripes returns how many there are.
func (s *Striped) Stripes() int { return len(s.stripes) }

// Index returns the number of key's stripe: its 64-bit FNV-1a hash modulo the number of
// stripes, the same on every machine and in every version of this library.
func (s *Striped) Index(key string) int {
	s.needMade()
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(key)) // never fails
	return int(hash.Sum64() % uint64(len(s.stripes)))
}

// For returns the lock of key's stripe. To lock several keys at once, give all their locks
// to [NewMulti], which takes care of those that share a stripe.
func (s *Striped) For(key string) *Mutex { return s.stripes[s.Index(key)] }

// Stripe returns the lock of stripe i.
func (s *Striped) Stripe(i int) *Mutex {
	s.needMade()
	return s.stripes[i]
}

// Any waits for whichever stripe is free first and returns its number as well. If several are free,
// chance decides. It costs one read and one transaction if one is free; otherwise a
// place in line for every stripe until the first of them comes up, so it is first come, first
// served there too. Errors are as for [Multi.Lock].
//
// With more than 127 stripes, or more than etcd allows in a transaction, a call that finds none free has a
// place in line for a part of them only, 64 or fewer, which chance decides anew for each call. It looks at the
// others about every 10 s. Calls are served in the order in which they came where they wait for the
// same stripe; one that comes later may take a stripe that another does not wait for.
func (s *Striped) Any(ctx context.Context) (*Hold, int, error) {
	h, stripes, err := s.AnyN(ctx, 1)
	if err != nil {
		return nil, 0, err
	}
	return h, stripes[0], nil
}

// AnyN waits for whichever n stripes are free first and returns their numbers, in ascending
// order: all at once, with one hold and one token. It panics if n is less than 1 or more
// than there are. While it waits for the last of them it keeps those that came up, but two
// AnyN cannot wait for each other, since whoever came first is ahead in every stripe. More than 127
// cannot be had at once: the error is a [*TooManyError].
//
// It knows nothing of what is in the segments: who needs some that are not empty takes those by
// [Striped.Stripe], with a [Multi] if they are several.
func (s *Striped) AnyN(ctx context.Context, n int) (*Hold, []int, error) {
	return s.anyN(ctx, "lockany", n, true)
}

// DoAnyN is [Do] with whichever n stripes are free first.
func (s *Striped) DoAnyN(ctx context.Context, n int, fn func(ctx context.Context, h *Hold, stripes []int) error) error {
	need(fn, "DoAnyN needs a function")
	var stripes []int
	return do(ctx,
		func(ctx context.Context) (h *Hold, err error) {
			h, stripes, err = s.AnyN(ctx, n)
			return h, err
		},
		func(ctx context.Context, h *Hold) error { return fn(ctx, h, stripes) })
}

// TryAnyN takes n stripes if as many are free, and returns [ErrBusy] otherwise, with nothing
// written.
func (s *Striped) TryAnyN(ctx context.Context, n int) (*Hold, []int, error) {
	return s.anyN(ctx, "trylockany", n, false)
}

func (s *Striped) anyN(ctx context.Context, op string, n int, wait bool) (*Hold, []int, error) {
	s.ready(ctx)
	if n < 1 || n > len(s.stripes) {
		panic("etcdlock: " + strconv.Itoa(n) + " of " + strconv.Itoa(len(s.stripes)) + " stripes")
	}
	places := make([]fairqueue.Place, len(s.stripes))
	for i, m := range s.stripes {
		places[i], _ = m.place()
	}
	var chosen *fairqueue.Group
	h, err := s.acquire(ctx, op, func(ctx context.Context) (_ claim, err error) {
		chosen, err = fairqueue.TryAny(ctx, s.source, n, places...)
		if wait && errors.Is(err, ErrBusy) {
			chosen, err = fairqueue.JoinAny(ctx, s.source, n, places...)
		}
		if err != nil {
			return nil, err
		}
		return &chosenStripes{ticketClaim{ticket: chosen}, s}, nil
	})
	if err != nil {
		return nil, nil, err
	}
	return h, chosen.Chosen(), nil
}

// chosenStripes is the claim of stripes that were free.
type chosenStripes struct {
	ticketClaim
	striped *Striped
}

// bind adds the stripes to what the hold covers.
func (c *chosenStripes) bind(h *Hold) {
	l := *h.lock
	l.covers = slices.Clip(l.covers)
	for _, i := range c.ticket.(*fairqueue.Group).Chosen() {
		l.covers = append(l.covers, c.striped.stripes[i].covers...)
	}
	h.lock = &l
	c.ticketClaim.bind(h)
}
