package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// Striped is a number of exclusive locks, the stripes. They are taken by key ([Striped.For]), or as any of several
// equal parts, such as of the stock of a shop ([Striped.Any], [Striped.AnyN]). It is safe for concurrent use.
//
// Stripe i is the lock called name/i: a Mutex of that name is the same lock.
type Striped struct {
	lock
	stripes []*Mutex
}

// NewStriped returns the stripes of name, numbered from 0. All users must give the same number: with another number a
// key may have another stripe, and is not protected. It panics if the number is not positive or src is nil.
func NewStriped(src session.Source, name string, stripes int, opts ...Option) *Striped {
	if stripes <= 0 {
		panic("etcdlock: the number of stripes must be positive")
	}
	o := collect("a Striped", opts)
	l, _ := newLock(src, o, kindMulti, name)
	l.covers[0].prefix = "" // there is no lock of that name
	s := &Striped{lock: l}
	for i := range stripes {
		part := newSingle(src, o, kindMutex, name+"/"+strconv.Itoa(i))
		s.err = cmp.Or(s.err, part.err)
		s.stripes = append(s.stripes, &Mutex{single: part})
	}
	for _, m := range s.stripes {
		m.err = s.err // "" is not a name, though "/0" is
	}
	return s
}

// Stripes returns the number of stripes.
func (s *Striped) Stripes() int { return len(s.stripes) }

// Index returns the number of key's stripe: its 64-bit FNV-1a hash modulo the number of
// stripes, the same on every machine and in every version of this library.
func (s *Striped) Index(key string) int {
	s.needMade()
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(key)) // never fails
	return int(hash.Sum64() % uint64(len(s.stripes)))
}

// For returns the lock of key's stripe. To lock several keys at once, give all their locks to
// [NewMulti]; keys may share a stripe.
func (s *Striped) For(key string) *Mutex { return s.stripes[s.Index(key)] }

// Stripe returns the lock of stripe i.
func (s *Striped) Stripe(i int) *Mutex {
	s.needMade()
	return s.stripes[i]
}

// Any waits for the first stripe that is free and returns its number as well. If several are free,
// it picks one at random: one read and one transaction. Otherwise it is in line for every stripe until
// it gets one. Errors are as for [Multi.Lock].
//
// With more than 127 stripes, or more than etcd allows in a transaction, a call that finds none free
// is in line for up to 64 of them, picked at random, and gets none of the others. A later
// call may get a stripe that an earlier one does not wait for.
func (s *Striped) Any(ctx context.Context) (*Hold, int, error) {
	h, stripes, err := s.AnyN(ctx, 1)
	if err != nil {
		return nil, 0, err
	}
	return h, stripes[0], nil
}

// AnyN waits for the first n stripes that are free and returns their numbers, in ascending order, with
// one hold and one token. It panics if n is less than 1 or more than there are; for more than 127 the
// error is a [*TooManyError]. While it waits for the last of them it keeps the others, but two AnyN
// cannot wait for each other: the first to come is ahead in every stripe.
//
// To choose stripes by their numbers, use [Striped.Stripe] and [NewMulti].
func (s *Striped) AnyN(ctx context.Context, n int) (*Hold, []int, error) {
	return s.anyN(ctx, "lockany", n, true)
}

// DoAnyN is [Do] with AnyN.
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

// TryAnyN takes n stripes if as many are free, and returns [ErrBusy] otherwise, after one read.
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
		places[i] = m.place()
	}
	var chosen *fairqueue.Ticket
	h, err := s.acquireClaim(ctx, op, func(ctx context.Context) (_ claim, err error) {
		chosen, err = fairqueue.TryN(ctx, s.source, n, places...)
		if wait && errors.Is(err, ErrBusy) {
			chosen, err = fairqueue.JoinN(ctx, s.source, n, places...)
		}
		return &chosenStripes{ticketClaim{Ticket: chosen}, s}, err
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
	for _, i := range c.Chosen() {
		l.covers = append(l.covers, c.striped.stripes[i].covers...)
	}
	h.lock = &l
	c.ticketClaim.bind(h)
}
