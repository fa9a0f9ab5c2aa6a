package proof_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const never = math.MaxInt64

// ticketID is a key and the revision at which it was created.
type ticketID struct {
	key     string
	created int64
}

// ticket is the history of one place in a queue. This is the rule of ownership, written a second time from
// the documents, and applied to etcd's history.
type ticket struct {
	ticketID
	deleted              int64 // revision, or never
	createdAt, deletedAt int64 // when that was seen
	shares               int64 // the revision from which on an exclusive one lets readers in, or never
	value                string
	lease                clientv3.LeaseID // with which it was created
}

func (t *ticket) queue() string { return t.key[:strings.LastIndexByte(t.key, '/')+1] }
func (t *ticket) name() string  { return t.key[len(t.queue()):] }

func (t *ticket) mode() byte {
	if name := t.name(); name != "" && strings.IndexByte("slp", name[0]) >= 0 {
		return name[0]
	}
	return 'x'
}

// number is the weight of permits, or the priority of a candidate.
func (t *ticket) number() int64 {
	fields := strings.Split(t.name(), "-")
	if len(fields) < 3 {
		return 0
	}
	n, _ := strconv.ParseInt(fields[2], 16, 64)
	return n
}

func (t *ticket) there(revision int64) bool { return t.created <= revision && revision < t.deleted }

// timeline is all tickets there have been.
type timeline struct {
	queues  map[string][]*ticket // as they were created
	tickets map[ticketID]*ticket
	alive   map[string]*ticket // by key
}

func newTimeline() *timeline {
	return &timeline{queues: map[string][]*ticket{}, tickets: map[ticketID]*ticket{}, alive: map[string]*ticket{}}
}

// isTicket leaves out the sizes of semaphores, which stay, and the epochs of sessions, which end with them.
func isTicket(key string) bool {
	return strings.HasPrefix(key, "etcdlock/") && !strings.Contains(key, "/!size/") && !strings.Contains(key, "/!/epoch/")
}

func (l *timeline) put(kv *mvccpb.KeyValue, now int64) {
	key := string(kv.Key)
	if !isTicket(key) {
		return
	}
	t := l.alive[key]
	if t == nil {
		t = &ticket{ticketID: ticketID{key, kv.CreateRevision}, createdAt: now, deleted: never, deletedAt: never, shares: never,
			value: string(kv.Value), lease: clientv3.LeaseID(kv.Lease)}
		l.alive[key], l.tickets[t.ticketID] = t, t
		l.queues[t.queue()] = append(l.queues[t.queue()], t)
	}
	if bytes.HasPrefix(kv.Value, []byte(`{"mark":"shared",`)) {
		t.shares = min(t.shares, kv.ModRevision)
	}
}

func (l *timeline) deleted(key string, revision, now int64) {
	if t := l.alive[key]; t != nil {
		t.deleted, t.deletedAt = revision, now
		delete(l.alive, key)
	}
}

func (l *timeline) left() (left []*ticket) {
	for _, t := range l.alive {
		left = append(left, t)
	}
	slices.SortFunc(left, func(a, b *ticket) int { return strings.Compare(a.key, b.key) })
	return left
}

// sizes are those of semaphores, by queue.
var sizes = map[string]int64{
	"etcdlock/pool/":     poolSize,
	"etcdlock/numbered/": poolSize,
}

// owns returns the first revision at which nothing is in the way of t, or never. From then on
// nothing ever is, because all that can be was created before.
func (l *timeline) owns(t *ticket) int64 {
	first, sum := t.created, int64(0)
	var ends []*ticket
	for _, other := range l.queues[t.queue()] {
		switch {
		case other.created >= t.created || other.deleted < t.created:
		case t.mode() == 'p':
			ends = append(ends, other)
			sum += other.number()
		case t.mode() == 's' && other.mode() == 's':
		case t.mode() == 's':
			first = max(first, min(other.deleted, other.shares))
		default:
			first = max(first, other.deleted)
		}
	}
	slices.SortFunc(ends, func(a, b *ticket) int { return int(a.deleted - b.deleted) })
	for sum+t.number() > sizes[t.queue()] && t.mode() == 'p' {
		if len(ends) == 0 {
			return never
		}
		first, sum, ends = ends[0].deleted, sum-ends[0].number(), ends[1:]
	}
	return first
}

// ownedTogether returns an error if there is no revision, from the first to the last, at which all the tickets owned.
func (l *timeline) ownedTogether(ids []ticketID, first, last int64) error {
	for _, id := range ids {
		t := l.tickets[id]
		if t == nil {
			return fmt.Errorf("%s never was created at %d", id.key, id.created)
		}
		owns := l.owns(t)
		first, last = max(first, owns), min(last, t.deleted-1)
		if first > last {
			return fmt.Errorf("%s, created at %d, owned from %d until before %d", id.key, id.created, owns, t.deleted)
		}
	}
	return nil
}

// head returns the first in a queue at a revision, or nil.
func (l *timeline) head(queue string, revision int64) *ticket {
	for _, t := range l.queues[queue] {
		if t.there(revision) {
			return t
		}
	}
	return nil
}
