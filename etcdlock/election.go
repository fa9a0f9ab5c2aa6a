package etcdlock

import (
	"context"
	"errors"
	"iter"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// Election chooses one of several candidates, each of which has a value, to lead until it resigns or
// crashes. Then the candidate leads that has waited longest, or has the highest priority
// ([WithPriority]). It has no state: all Election values of one name are the same election. It is safe
// for concurrent use.
//
// With [AtPrefix], candidates and observers that use etcd's concurrency package, or "etcdctl elect", at
// that prefix take part.
type Election struct{ single }

// NewElection returns the election of name. It is like [NewMutex]; a Mutex of that name and
// a leader exclude each other.
func NewElection(src session.Source, name string, opts ...Option) *Election {
	return &Election{newSingle(src, collect(anElection, opts), kindElection, name)}
}

// Campaign waits until it leads, or ctx ends: one round trip if there is no other candidate. Observers see value
// until [Term.Proclaim] replaces it. ctx bounds the wait, not the term. [Election.Run] also campaigns again and
// resigns.
//
// Errors are as for [Mutex.Lock], and [ErrTooLarge] for a value of more than 1 MiB. A candidate that
// is passed over by a [Term.Transfer] or for a higher priority, or whose key is removed by hand while
// its session lives, joins again at the end of the line, without an error.
func (e *Election) Campaign(ctx context.Context, value string) (*Term, error) {
	var c *candidacy
	h, err := e.acquireClaim(ctx, "campaign", func(ctx context.Context) (claim, error) {
		c = &candidacy{election: e, value: value, transfers: make(chan struct{}, 1)}
		return c, c.join(ctx)
	})
	if err != nil {
		return nil, err
	}
	return &Term{Hold: h, candidacy: c}, nil
}

// candidacy is the claim of a candidate, which joins again when it has been passed over.
type candidacy struct {
	ticketClaim
	election *Election
	value    string

	transfers chan struct{} // full while one is under way
}

func (c *candidacy) join(ctx context.Context) error {
	t, err := fairqueue.JoinN(ctx, c.election.source, 1, fairqueue.Place{
		Queue: c.election.queue, Mode: fairqueue.Candidate, Value: c.value, Priority: c.election.opts.priority,
	})
	if err == nil {
		c.Ticket = t
	}
	return err
}

func (c *candidacy) Wait(ctx context.Context) error {
	for {
		err := c.Ticket.Wait(ctx)
		if err == nil || !errors.Is(err, fairqueue.ErrGone) {
			return err
		}
		if err := c.join(ctx); err != nil {
			return err
		}
	}
}

// Leader is the leader or a candidate. The zero Leader is a vacancy.
type Leader struct {
	Value string
	Key   string // in etcd
	Token Token  // fencing token of the term
	// Priority is that of WithPriority; 0 for candidates of other programs.
	Priority int
}

// Vacant reports whether there is no leader.
func (l Leader) Vacant() bool { return l.Token == 0 }

// leaderOf is the first of those in line.
func leaderOf(entries []fairqueue.Entry) Leader {
	if len(entries) == 0 {
		return Leader{}
	}
	e := entries[0]
	return Leader{Value: string(e.Value), Key: e.Key, Token: Token(e.Revision), Priority: e.Priority}
}

// Leader returns the present leader: one linearizable read. During a vacancy the error wraps
// [ErrNoLeader]. It needs no session, and the caller need not be a candidate.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	entries, err := e.entries(ctx)
	leader := leaderOf(entries)
	if err == nil && leader.Vacant() {
		err = ErrNoLeader
	}
	return leader, failed("leader", e.name, err)
}

// Candidates returns the waiting candidates, in line, for [Term.Transfer]. Cost and errors are as for
// Leader, without ErrNoLeader.
func (e *Election) Candidates(ctx context.Context) (waiting []Leader, err error) {
	entries, err := e.entries(ctx)
	for i := 1; i < len(entries); i++ {
		waiting = append(waiting, leaderOf(entries[i:]))
	}
	return waiting, failed("candidates", e.name, err)
}

func (e *Election) entries(ctx context.Context) ([]fairqueue.Entry, error) {
	e.ready(ctx)
	if e.err != nil {
		return nil, e.err
	}
	entries, _, err := e.queue.Entries(ctx)
	return entries, err
}

// Observe yields the present leader, and then every change of leader or value, in order, until ctx
// ends or the loop is left. A vacancy is a zero Leader. It needs no session, and the caller need not
// be a candidate.
//
//	for leader, err := range election.Observe(ctx) {
//
// Temporary failures are retried. Changes are left out only if etcd has compacted them meanwhile. If
// etcd refuses the read (permission denied), an error is yielded with a zero Leader, and Observe
// retries with pauses unless the loop is left. If the client is closed, an error is yielded and the
// loop ends. It costs one read, one watch, and another read about every 10 s.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	e.ready(ctx)
	return func(yield func(Leader, error) bool) {
		if e.err != nil {
			yield(Leader{}, failed("observe", e.name, e.err))
			return
		}
		var last *Leader
		for entries, err := range e.queue.Follow(ctx) {
			leader := leaderOf(entries) // zero with an error
			switch {
			case err != nil:
			case last != nil && leader == *last:
				continue
			default:
				last = &leader
			}
			if !yield(leader, failed("observe", e.name, err)) {
				return
			}
		}
	}
}
