package session

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// aloneLimit is how many requests may be under way before others collect: so few are made
	// one by one as fast as etcd takes them.
	aloneLimit = 8

	// togetherLimit is how many may be under way when those who have collected go out: more would
	// leave less to collect.
	togetherLimit = 4

	// apartLimit is how many may be under way when one goes out alone that must stay apart from
	// one that waits.
	apartLimit = 128

	// operationLimit is etcd's default, which it counts along each path into nested
	// transactions.
	operationLimit = 128

	// batchLimit leaves as many operations to each transaction as there may be of them.
	batchLimit = operationLimit / 2

	// overdue is when a request is no reason to wait any longer: its endpoint may be silent.
	overdue = 100 * time.Millisecond
)

// Transaction is what one caller wants of etcd, and may go out together with others'.
type Transaction struct {
	If         []clientv3.Cmp
	Then, Else []clientv3.Op

	// Apart keeps transactions apart from others with the same one, if it is not empty: they
	// must not take effect at the same revision. Those without one come first where several go
	// out together, so the others see what they did.
	Apart string

	// Likely says that If is expected to hold, as for a key of one's own. Together with others,
	// such a transaction costs etcd less if it does, and otherwise all of them a second request.
	Likely bool
}

// Commit makes one attempt at t, for use within [Session.Call]. It may go out together with
// transactions of other goroutines that use the session: while eight requests are under way,
// what comes collects, and goes out as one request, as long as the operations of a transaction are
// no more than 64, those on the way to each transaction within it added up. Whoever comes while there are fewer does not wait. The answer is what
// it would be for t alone, and so is the error: what etcd refuses as a whole is asked for
// again by each on its own. No two of them may write the same key.
//
// If ctx ends before the request was sent, the error is not [Doubtful]; otherwise it is, and
// the request goes on. Safe for concurrent use.
func (s *Session) Commit(ctx context.Context, t Transaction) (answer *clientv3.TxnResponse, err error) {
	m := s.board(t)
	if m == nil {
		defer s.land()
		return s.commit(ctx, t)
	}
	select {
	case <-m.answered:
		if m.again {
			return s.commit(ctx, t)
		}
		return m.answer, m.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.ctx.Done():
		err = context.Cause(s.ctx)
	}
	if s.commits.withdraw(m) {
		err = unsent{err}
	}
	return nil, err
}

func (s *Session) commit(ctx context.Context, t Transaction) (*clientv3.TxnResponse, error) {
	return s.client.Txn(ctx).If(t.If...).Then(t.Then...).Else(t.Else...).Commit()
}

// unsent is the error of a request that etcd never got.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// passenger is a transaction that waits to go out, or is under way with others.
type passenger struct {
	Transaction

	answered chan struct{} // closed when what follows is there
	answer   *clientv3.TxnResponse
	err      error
	again    bool // it has to go alone
}

// commits are the requests of a session that are under way, and what waits to go out next.
type commits struct {
	mu         sync.Mutex
	flights    int
	waiting    []*passenger
	limit      int         // of a batch
	operations int         // how many a request may have
	overdue    *time.Timer // runs while somebody waits; nil until somebody has
}

// board says to go at once, or returns the passenger that t has become.
func (s *Session) board(t Transaction) *passenger {
	c := &s.commits
	c.mu.Lock()
	defer c.mu.Unlock()
	room := c.flights < aloneLimit && len(c.waiting) == 0 || depth(t.If, t.Then, t.Else) > batchLimit
	if !room && t.Apart != "" && c.flights < apartLimit {
		// It could not go out together with the one that waits already.
		room = slices.ContainsFunc(c.waiting, func(m *passenger) bool { return m.Apart == t.Apart })
	}
	if room {
		c.flights++
		return nil
	}
	m := &passenger{Transaction: t, answered: make(chan struct{})}
	if c.waiting = append(c.waiting, m); len(c.waiting) == 1 {
		c.patience(func() { s.depart(true) })
	}
	return m
}

func (c *commits) patience(end func()) {
	if c.overdue == nil {
		c.overdue = time.AfterFunc(overdue, end)
	} else {
		c.overdue.Reset(overdue)
	}
}

// withdraw reports whether m has not been sent, and will not be.
func (c *commits) withdraw(m *passenger) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.waiting, m)
	if i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
	return i >= 0
}

// next takes those who go out next. None if there are enough requests under way, unless
// nobody is to wait for them any longer.
func (c *commits) next(late bool) (batch []*passenger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 || c.flights >= togetherLimit && !late {
		return nil
	}
	c.flights++
	taken := make(map[string]bool, len(c.waiting))
	c.waiting = slices.DeleteFunc(c.waiting, func(m *passenger) bool {
		if len(batch) == c.limit || taken[m.Apart] {
			return false
		}
		taken[m.Apart] = m.Apart != ""
		batch = append(batch, m)
		return true
	})
	if len(c.waiting) > 0 {
		c.overdue.Reset(overdue)
	} else {
		c.overdue.Stop()
	}
	slices.SortStableFunc(batch, func(a, b *passenger) int { return min(len(a.Apart), 1) - min(len(b.Apart), 1) })
	return batch
}

// land is called when a request is no longer under way.
func (s *Session) land() {
	s.commits.mu.Lock()
	s.commits.flights--
	s.commits.mu.Unlock()
	s.depart(false)
}

// depart sends the next batch, if there is one.
func (s *Session) depart(late bool) {
	batch := s.commits.next(late)
	if batch == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spawn(func(context.Context) { s.fly(batch) }) // or else those who wait find out by themselves
}

// fly makes one request of all of batch. It goes on when those who wait for it have given up:
// some of them may not have.
func (s *Session) fly(batch []*passenger) {
	defer s.land()
	answers := make([]*clientv3.TxnResponse, len(batch))
	_, err := attempt(context.Background(), s.ctx, longAttempt, func(ctx context.Context) (err error) {
		if len(batch) == 1 {
			answers[0], err = s.commit(ctx, batch[0].Transaction)
			return err
		}
		answers, err = s.commitAll(ctx, batch)
		return err
	})
	refused := err != nil && len(batch) > 1 && !Doubtful(err) && !Passing(err)
	if len(batch) > 1 && errors.Is(err, rpctypes.ErrTooManyOps) {
		s.commits.allow(len(batch) / 2)
	}
	for i, m := range batch {
		switch m.err = err; {
		case refused:
			m.again = true
		case err == nil:
			m.answer = answers[i]
		}
		close(m.answered)
	}
}

// commitAll makes one request of several transactions, and a second if one of those that were
// expected to succeed does not, or etcd has a lower limit than usual.
func (s *Session) commitAll(ctx context.Context, passengers []*passenger) ([]*clientv3.TxnResponse, error) {
	room := s.commits.room()
	b := together(passengers, room)
	answer, err := s.commit(ctx, b.transaction())
	tooMany := len(b.conditions) > 0 && errors.Is(err, rpctypes.ErrTooManyOps)
	if tooMany {
		s.commits.narrow(room)
	}
	if tooMany || err == nil && !answer.Succeeded {
		b = together(passengers, 0)
		answer, err = s.commit(ctx, b.transaction())
	}
	if err != nil {
		return nil, err
	}
	return b.answers(answer), nil
}

func (c *commits) room() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.operations
}

// narrow and allow are for an etcd that was started with another limit of operations.
func (c *commits) narrow(tooMany int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.operations = min(c.operations, tooMany/2)
}

func (c *commits) allow(limit int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = min(c.limit, limit)
}
