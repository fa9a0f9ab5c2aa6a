package fairqueue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// ErrBusy is what [Queue.TryJoin] returns if it would have to wait. Nothing is left
// of the attempt. Do something else, or Join.
var ErrBusy = errors.New("etcdlock: busy")

// Queue is one line of tickets in etcd, named by its prefix. Any number of Queue values with the same
// prefix are the same queue. It is safe for concurrent use.
type Queue struct {
	source  session.Source
	space   space
	start   clientv3.Op // reads the queue, as far as a join brings it back
	epochs  []string    // folders of the keys of sessions' epochs
	shared  bool        // with other programs
	owner   string      // template of its tickets' values
	recheck time.Duration
	err     error // of the label

	numbered bool // permits
}

// New returns the queue at prefix, which gets a slash appended; tickets are bound
// to sessions from source. No request is made. A nil source panics.
func New(source session.Source, prefix string, opts ...Option) *Queue {
	if source == nil || source == (*session.Session)(nil) || source == (*session.Keeper)(nil) {
		panic("etcdlock: a queue needs a session source")
	}
	o := options{recheck: defaultRecheck}
	for _, opt := range opts {
		if opt == nil {
			panic("etcdlock: nil option")
		}
		opt.apply(&o)
	}
	q := &Queue{
		source: source, owner: thisProcess(o.label).template(), recheck: o.recheck, shared: o.shared,
		err: checkSize("a label", len(o.label), longestLabel), numbered: o.numbered,
	}
	return q.At(prefix)
}

// At returns the queue at another prefix with the same source and options.
func (q *Queue) At(prefix string) *Queue {
	at := q.in(space(prefix + "/"))
	at.epochs = epochFolders(prefix, q.shared)
	return at
}

// in returns a queue that differs in where its tickets are.
func (q *Queue) in(s space) *Queue {
	return &Queue{
		source: q.source, owner: q.owner, recheck: q.recheck, shared: q.shared, epochs: q.epochs, err: q.err,
		space: s, start: s.start(), numbered: q.numbered,
	}
}

func (s space) start() clientv3.Op {
	all := s.all()
	return clientv3.OpGet(all.first, clientv3.WithRange(all.end), clientv3.WithLimit(joinLimit), clientv3.WithKeysOnly())
}

// Entry is a ticket as others see it.
type Entry struct {
	Key      string
	Revision int64 // create revision: the place in line, and the fencing token
	Mode     Mode
	Foreign  bool             // whether its name is none that this package gives: another program has put it there
	Lease    clientv3.LeaseID // 0: the key stays until it is removed
	Owner    Owner            // zero if the ticket is of another kind than ours, or a candidate
	Value    []byte           // for a candidate the caller's own
	Priority int              // of a candidate
	Weight   int64            // of a ticket for permits

	version int64 // revision at which the value was written
}

// Shares reports whether it can own together with shared tickets.
func (e Entry) Shares() bool {
	return e.Mode == Shared || e.Mode == Exclusive && isMarked(e.Value)
}

// Entries lists the tickets in order, as of one moment: one linearizable read of
// the whole queue. The first entry owns, and the shared ones that follow it
// without a gap if it is shared. It needs no session if the source is a Session or a
// Keeper; then it is tried again until ctx ends.
func (q *Queue) Entries(ctx context.Context) ([]Entry, error) {
	entries, _, err := q.Inspect(ctx)
	return entries, err
}

// Inspect is Entries and, in the same read, the size of the semaphore, 0 if it is none.
func (q *Queue) Inspect(ctx context.Context) (entries []Entry, size int64, err error) {
	client, err := q.client(ctx)
	if err != nil {
		return nil, 0, q.failed(err)
	}
	kvs, _, err := q.read(ctx, client)
	if err != nil {
		return nil, 0, q.failed(err)
	}
	for _, kv := range kvs {
		if agreed, ok := q.space.sizeOf(string(kv.Key)); ok {
			size = agreed
		}
	}
	return slices.SortedFunc(maps.Values(q.state(kvs)), byRevision), size, nil
}

// Owning tells how many of the entries, which are in order, own; size is that of a semaphore,
// and 0 for other queues. After a reduction it counts no more than fit into the new size: who had
// been granted a permit before has it all the same, but nothing in etcd tells it from one who waits.
func Owning(entries []Entry, size int64) int {
	owning, sum := 0, int64(0)
	for i, e := range entries {
		if size > 0 && e.Mode == permit {
			weight := max(e.Weight, 1)
			if weight > size-sum { // compared like this, nothing overflows
				break
			}
			sum += weight
		} else if i > 0 && (!entries[0].Shares() || e.Mode != Shared) {
			break
		}
		owning++
		if size > 0 && e.Mode != permit {
			break // takes all there is
		}
	}
	return owning
}
