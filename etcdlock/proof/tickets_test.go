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
	deleted              int64  // revision, or never
	createdAt, deletedAt int64  // when that was seen
	marks                []mark // of an exclusive one
	value                string
	lease                clientv3.LeaseID // with which it was created
}

// mark says that an exclusive ticket lets readers in from a revision on, or no more.
type mark struct {
	revision int64
	shares   bool
}

func (t *ticket) marked(value []byte) bool {
	return bytes.HasPrefix(value, []byte(`{"mark":"shared",`))
}

// letsIn returns the first revision from r on at which t keeps no readers waiting, or never.
func (t *ticket) letsIn(r int64) int64 {
	for i, m := range t.marks {
		if m.shares && (i == len(t.marks)-1 || t.marks[i+1].revision > r) {
			return min(max(r, m.revision), t.deleted)
		}
	}
	return max(r, t.deleted)
}

func (t *ticket) queue() string { return t.key[:strings.LastIndexByte(t.key, '/')+1] }
func (t *ticket) name() string  { return t.key[len(t.queue()):] }

func (t *ticket) mode() byte {
	if name := t.name(); name != "" && strings.IndexByte("slp", name[0]) >= 0 {
		return name[0]
	}
	if t.marked([]byte(t.value)) {
		return 'u' // from the beginning
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
		t = &ticket{ticketID: ticketID{key, kv.CreateRevision}, createdAt: now, deleted: never, deletedAt: never,
			value: string(kv.Value), lease: clientv3.LeaseID(kv.Lease)}
		l.alive[key], l.tickets[t.ticketID] = t, t
		l.queues[t.queue()] = append(l.queues[t.queue()], t)
	}
	t.marks = append(t.marks, mark{kv.ModRevision, t.marked(kv.Value)})
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
		case t.mode() == 's': // below
		case t.mode() == 'u' && other.mode() == 's':
		default:
			first = max(first, other.deleted)
		}
	}
	for again := t.mode() == 's'; again; { // until there is a revision at which none keeps it out
		again = false
		for _, other := range l.queues[t.queue()] {
			if other.created < t.created && other.deleted > first && other.mode() != 's' && first < never {
				next := other.letsIn(first)
				first, again = next, again || next > first
			}
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

// upgradedBeside returns a shared ticket that owned when the mark of another one of its queue was removed.
func (l *timeline) upgradedBeside() (wrong []string) {
	for _, queue := range l.queues {
		for _, t := range queue {
			for i, m := range t.marks {
				if i == 0 || m.shares || !t.marks[i-1].shares {
					continue
				}
				for _, other := range queue {
					if other.mode() == 's' && other.there(m.revision) && l.owns(other) < m.revision {
						wrong = append(wrong, fmt.Sprintf("%s was upgraded at revision %d, and %s, created at %d, owned", t.key, m.revision, other.key, other.created))
					}
				}
			}
		}
	}
	return wrong
}

// upgraded reports whether a ticket was there without a mark at some revision, from the first to the last.
func (l *timeline) upgraded(id ticketID, first, last int64) bool {
	t := l.tickets[id]
	for i, m := range t.marks {
		end := t.deleted
		if i+1 < len(t.marks) {
			end = t.marks[i+1].revision
		}
		if !m.shares && m.revision <= last && first < end {
			return true
		}
	}
	return false
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
