package fairqueue

import (
	"cmp"
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// Queue is one line of tickets in etcd, named by its prefix. Any number of Queue values with the same
// prefix are the same queue. It is safe for concurrent use.
type Queue struct {
	options Options
	source  session.Source
	space   space
	epochs  []string // folders of the keys of sessions' epochs
	owner   string   // template of its tickets' values
}

// New returns the queue at prefix, which gets a slash appended; tickets are bound
// to sessions from source. No request is made. A nil source panics.
func New(source session.Source, prefix string) *Queue { return NewWith(source, prefix, Options{}) }

// NewWith is New with other options than the default ones.
func NewWith(source session.Source, prefix string, o Options) *Queue {
	if source == nil || source == (*session.Session)(nil) || source == (*session.Keeper)(nil) {
		panic("etcdlock: a queue needs a session source")
	}
	return (&Queue{options: o, source: source, owner: thisProcess(o.Label).template()}).At(prefix)
}

// At returns the queue at another prefix with the same source and options.
func (q *Queue) At(prefix string) *Queue {
	at := q.in(space(prefix + "/"))
	at.epochs = epochFolders(prefix, q.options.OtherPrograms)
	return at
}

// in returns a queue that differs in where its tickets are.
func (q *Queue) in(s space) *Queue {
	in := *q
	in.space = s
	return &in
}

// Entry is a ticket as others see it.
type Entry struct {
	Key      string
	Revision int64 // create revision: the place in line, and the fencing token
	Mode     Mode
	Owns     bool             // set by Entries
	Foreign  bool             // whether another program has put it there: its name is none that this package gives
	Lease    clientv3.LeaseID // 0: the key stays until it is removed
	Owner    Owner            // zero if the ticket is of another kind than ours, or a candidate
	Value    []byte           // for a candidate the caller's own
	Priority int              // of a candidate
	Weight   int64            // of a ticket for permits

	version int64 // revision at which the value was written
}

// Entries lists the tickets in order, and returns the size of the semaphore, 0 if it is none, as of
// one moment: one linearizable read of the whole queue. It needs no session if the source is a
// Session or a Keeper; then it is tried again until ctx ends.
//
// After a reduction of a semaphore it counts as owning what fits into the new size: a permit that was granted
// before is still held, but in etcd it looks like one that is waited for.
func (q *Queue) Entries(ctx context.Context) (entries []Entry, size int64, err error) {
	client, err := q.client(ctx)
	if err != nil {
		return nil, 0, q.failed(err)
	}
	kvs, err := q.read(ctx, client)
	if err != nil {
		return nil, 0, q.failed(err)
	}
	entries, size = q.parse(kvs)
	return entries, size, nil
}

// owning returns how many of the entries, which are in order, own. The size is that of a semaphore, or 0.
func owning(entries []Entry, size int64) (n int) {
	left := size
	for i, e := range entries {
		if size > 0 && e.Mode == permit {
			if left -= max(e.Weight, 1); left < 0 {
				break
			}
		} else if first := entries[0]; i > 0 && (e.Mode != Shared || first.Mode != Shared && !isMarked(first.Value)) {
			break
		}
		n++
		if size > 0 && e.Mode != permit {
			break // takes all there is
		}
	}
	return n
}

// withSession runs attempt with a live session, and again with the next one if
// that turns out to be lost. A source that has no next one says so.
func withSession(ctx context.Context, source session.Source, attempt func(*session.Session) (*Ticket, error)) (*Ticket, error) {
	needContext(ctx)
	if source == nil {
		panic("etcdlock: a queue needs a session source, and is made with New")
	}
	for {
		s, err := source.Session(ctx)
		if err == nil {
			err = ctx.Err() // nothing has been sent, nothing is to be cleaned up
		}
		if err != nil {
			return nil, err
		}
		t, err := attempt(s)
		switch {
		case err == nil:
			return t, nil
		case !errors.Is(err, session.ErrLost):
			return nil, err
		}
	}
}

// acquire is withSession for one ticket of q, with a value of the caller's.
func (q *Queue) acquire(ctx context.Context, value string, attempt func(*session.Session) (*Ticket, error)) (t *Ticket, err error) {
	if err = cmp.Or(q.checkLabel(), checkValue(value)); err == nil {
		t, err = withSession(ctx, q.source, attempt)
	}
	return t, q.failed(err)
}

func (q *Queue) checkLabel() error { return checkSize("a label", len(q.options.Label), longestLabel) }

func needContext(ctx context.Context) {
	if ctx == nil {
		panic("etcdlock: nil context")
	}
}
