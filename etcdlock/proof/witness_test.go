package proof_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/etcdlock/locks/embedtest"
)

// memberPoll is how often a witness looks whether a member is another process than before.
const memberPoll = 20 * time.Millisecond

// witness follows the history of all keys in the stores of the members themselves, where no
// fault of a network or of a request can hide anything.
type witness struct {
	cluster *embedtest.Cluster
	now     func() int64
	fail    func(string)
	stop    context.CancelFunc
	reading sync.WaitGroup

	mu       sync.Mutex
	seen     int64 // every change up to this revision has been noted
	ends     int   // of members so far, and moments while one is under way
	underWay int   // ends of members
	*timeline
}

// newWitness starts to read. It ends with close.
func newWitness(cluster *embedtest.Cluster, h *history) *witness {
	ctx, cancel := context.WithCancel(context.Background())
	w := &witness{cluster: cluster, now: h.now, fail: h.fail, stop: cancel, timeline: newTimeline()}
	for _, m := range cluster.Members() {
		w.reading.Go(func() {
			for ctx.Err() == nil {
				if server := m.Server(); server != nil {
					w.read(ctx, m, server)
				}
				wait(ctx, memberPoll)
			}
		})
	}
	return w
}

func (w *witness) close() {
	w.stop()
	w.reading.Wait()
}

// read notes what one run of a member has to tell.
func (w *witness) read(ctx context.Context, m *embedtest.Member, server *etcdserver.EtcdServer) {
	stream := server.KV().NewWatchStream()
	defer stream.Close()
	if _, err := stream.Watch(ctx, 0, []byte{0}, []byte{}, w.position()+1); err != nil {
		w.fail(fmt.Sprintf("the test itself: %v", err))
		return
	}
	poll := time.NewTicker(memberPoll)
	defer poll.Stop()
	for {
		select {
		case answer, ok := <-stream.Chan():
			if !ok {
				return
			}
			w.note(answer)
		case <-poll.C:
			if m.Server() != server {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// note takes in what has not been noted from another member. An answer has all changes of
// each of its revisions.
func (w *witness) note(answer mvcc.WatchResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if answer.CompactRevision > w.seen {
		w.fail(fmt.Sprintf("the test itself: history up to %d was compacted, and has been read up to %d", answer.CompactRevision, w.seen))
	}
	now, before := w.now(), w.seen
	for _, e := range answer.Events {
		if e.Kv.ModRevision <= before {
			continue
		}
		w.seen = max(w.seen, e.Kv.ModRevision)
		if e.Type == mvccpb.Event_DELETE {
			w.deleted(string(e.Kv.Key), e.Kv.ModRevision, now)
		} else {
			w.put(e.Kv, now)
		}
	}
}

func (w *witness) position() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// revision returns the highest one that any member has applied.
func (w *witness) revision() int64 {
	highest := w.position()
	for _, m := range w.cluster.Members() {
		if server := m.Server(); server != nil {
			highest = max(highest, server.KV().Rev())
		}
	}
	return highest
}

// moment is a point in the history as a client sees it.
type moment struct {
	revision int64 // at least that far the cluster was
	at       int64
	ends     int // of members until then
}

// moment may be asked of no witness, which tells the time only.
func (w *witness) moment(now int64) moment {
	if w == nil {
		return moment{at: now}
	}
	revision := w.revision()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.underWay > 0 {
		w.ends++
	}
	return moment{revision: revision, at: now, ends: w.ends}
}

// memberEnds notes that end ends a member, which takes with it how far it was. An answer that the member gave meanwhile
// tells of a revision that no moment knows.
func (w *witness) memberEnds(end func()) {
	w.ending(1)
	defer w.ending(-1)
	end()
}

func (w *witness) ending(change int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends++
	w.underWay += change
}

// caughtUp waits until all that is in etcd by now has been noted.
func (w *witness) caughtUp(t *testing.T) {
	t.Helper()
	revision := w.revision()
	require.Eventually(t, func() bool { return w.position() >= revision }, 30*time.Second, 10*time.Millisecond)
}

// left returns the tickets that are still there.
func (w *witness) left() (left []*ticket) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.timeline.left()
}

// there reports whether tickets still exist, as far as has been seen.
func (w *witness) there(ids []ticketID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if t := w.tickets[id]; t != nil && t.deleted != never {
			return false
		}
	}
	return true
}
