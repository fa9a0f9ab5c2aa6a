package fairqueue

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

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

func (e Entry) ticket() entry { return entry{key: e.Key, revision: e.Revision} }

// Entries lists the tickets in order, and returns the size of the semaphore, 0 if it is none, as of
// one moment: one linearizable read of the whole queue. It needs no session if the source is a
// Session or a Keeper; then it is tried again until ctx ends.
//
// After a reduction of a semaphore the tickets that fit into the new size count as owning. A permit that was granted
// before and does not fit is still held, but in etcd it looks like one that is waited for.
func (q *Queue) Entries(ctx context.Context) (entries []Entry, size int64, err error) {
	client, err := q.client(ctx)
	if err == nil {
		var kvs []*mvccpb.KeyValue
		kvs, err = q.read(ctx, client, session.Retry)
		entries, size = q.parse(kvs)
	}
	return entries, size, q.failed(ctx, err)
}

// client is the one to make requests with that need no session.
func (q *Queue) client(ctx context.Context) (*clientv3.Client, error) {
	needContext(ctx)
	if q.source == nil {
		panic("etcdlock: a queue is made with New")
	}
	if has, ok := q.source.(interface{ Client() *clientv3.Client }); ok {
		return has.Client(), request.CheckClient(has.Client())
	}
	s, err := q.source.Session(ctx)
	if err != nil {
		return nil, err
	}
	return s.Client(), nil
}

// read reads the whole queue. Retry is [session.Retry] or [link.Link.Call].
func (q *Queue) read(ctx context.Context, client *clientv3.Client, retry func(context.Context, func(context.Context) error) error) (kvs []*mvccpb.KeyValue, err error) {
	err = retry(ctx, func(ctx context.Context) error {
		answer, err := client.Do(ctx, q.space.all().get())
		if err == nil {
			kvs = answer.Get().Kvs
		}
		return err
	})
	return kvs, err
}

func (q *Queue) state(kvs []*mvccpb.KeyValue) map[string]Entry {
	state := make(map[string]Entry, len(kvs))
	for _, kv := range kvs {
		if e, ok := q.entry(kv); ok {
			state[e.Key] = e
		}
	}
	return state
}

// Parse returns what [Queue.Entries] of the queue at prefix would, from keys that were read at one revision. Keys of
// other queues are left out. It makes no request.
func Parse(prefix string, kvs []*mvccpb.KeyValue) (entries []Entry, size int64) {
	return (&Queue{space: space(prefix + "/")}).parse(kvs)
}

func (q *Queue) parse(kvs []*mvccpb.KeyValue) (entries []Entry, size int64) {
	size = q.space.sizeIn(entriesOf(kvs))
	entries = sorted(q.state(kvs))
	own(entries, size)
	return entries, size
}

func (q *Queue) entry(kv *mvccpb.KeyValue) (Entry, bool) {
	key := string(kv.Key)
	mode, ok := q.space.mode(key)
	e := Entry{Key: key, Revision: kv.CreateRevision, Mode: mode, Lease: clientv3.LeaseID(kv.Lease), Value: kv.Value, version: kv.ModRevision}
	_, number, ours := q.space.parts(key)
	e.Foreign = !ours
	switch {
	case mode == Exclusive && isMarked(kv.Value):
		e.Mode = Upgradeable
	case ours && mode == permit:
		e.Weight = number
	case ours && mode == Candidate:
		e.Priority = int(number)
	}
	if mode != Candidate {
		e.Owner = parseOwner(kv.Value)
	}
	return e, ok
}

// own says of entries, which are in order, whether they own. The size is that of a semaphore, or 0.
func own(entries []Entry, size int64) {
	left, upgradeable := size, false
	for i := range entries {
		e := &entries[i]
		switch {
		case size > 0 && e.Mode == permit:
			left -= max(e.Weight, 1)
			e.Owns = left >= 0
		case size == 0 && e.Mode == Shared:
			e.Owns = true
		case size == 0 && e.Mode == Upgradeable:
			e.Owns, upgradeable = !upgradeable, true // another one that waits keeps no shared ones waiting
			continue
		default: // owns alone
			e.Owns = i == 0
			return
		}
		if !e.Owns {
			return
		}
	}
}

func sorted(state map[string]Entry) []Entry { return slices.SortedFunc(maps.Values(state), byRevision) }

func byRevision(a, b Entry) int { return cmp.Compare(a.Revision, b.Revision) }

// aheadLimit is how much of a queue is worth reading for an explanation: thousands of callers
// that give up at once must not overload etcd with their reads.
const aheadLimit = 1000

// Ahead reads which ticket owned and how many were ahead when the wait was over, for an error
// message; of several keys, for the first that has any ahead. A ticket that owns counts itself. It makes two requests for a key, not
// retried. If it failed, if none was ahead, or if the queue is longer than 1,000, ok is false.
func (t *Ticket) Ahead(ctx context.Context) (owner Entry, ahead int, ok bool) {
	for _, p := range t.parts {
		if owner, ahead, ok = p.ahead(ctx); ok {
			break
		}
	}
	return owner, ahead, ok
}

func (p *part) ahead(ctx context.Context) (owner Entry, ahead int, ok bool) {
	all, client := p.queue.space.all(), p.session.Client()
	// Keys only: the values of candidates may be large.
	answer, err := client.Get(ctx, all.first, clientv3.WithRange(all.end), clientv3.WithKeysOnly(),
		clientv3.WithLimit(aheadLimit), clientv3.WithSerializable())
	if err != nil || answer.More {
		return Entry{}, 0, false
	}
	entries := sorted(p.queue.state(answer.Kvs))
	if ahead = slices.IndexFunc(entries, func(e Entry) bool { return e.Revision >= p.me.revision }); ahead < 0 {
		ahead = len(entries)
	}
	if ahead == 0 {
		return Entry{}, 0, false // free by now
	}
	// The owner may leave between the two reads, so both are of one revision.
	owner, ok = p.read(ctx, entries[0].Key, answer.Header.Revision)
	return owner, ahead, ok
}

// Self reads the ticket itself, in the same way, for callers that wait for it in memory.
func (t *Ticket) Self(ctx context.Context) (e Entry, ok bool) {
	e, ok = t.first().read(ctx, t.Key(), 0)
	return e, ok && e.Revision == t.Revision()
}

// read reads a key of p's queue at a revision; 0 is the latest.
func (p *part) read(ctx context.Context, key string, revision int64) (Entry, bool) {
	answer, err := p.session.Client().Get(ctx, key, clientv3.WithRev(revision), clientv3.WithSerializable())
	if err != nil || len(answer.Kvs) == 0 {
		return Entry{}, false
	}
	return p.queue.entry(answer.Kvs[0])
}
