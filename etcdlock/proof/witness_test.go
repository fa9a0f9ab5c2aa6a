package proof_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdlock/locks/embedtest"
)

// witness is the timeline of all tickets by the history of etcd, and when members ended.
type witness struct {
	cluster *embedtest.Cluster
	stored  *embedtest.History
	told    *history

	mu       sync.Mutex
	ends     int   // of members so far, and moments while one is under way
	underWay int   // ends of members
	seen     int64 // the revision up to which the timeline is
	*timeline
}

func newWitness(cluster *embedtest.Cluster, h *history) *witness {
	return &witness{cluster: cluster, stored: cluster.Record(), told: h, timeline: newTimeline()}
}

// lock returns with mu held, and with all that has been recorded in the timeline.
func (w *witness) lock() {
	w.mu.Lock()
	changes, _ := w.stored.Changes(w.seen) // of a gap CatchUp tells
	for _, c := range changes {
		w.seen = c.Revision
		at := int64(c.Seen.Sub(w.told.start))
		for _, e := range c.Events {
			if e.Type == mvccpb.Event_DELETE {
				w.deleted(string(e.Kv.Key), c.Revision, at)
			} else {
				w.put(e.Kv, at)
			}
		}
	}
}

// revision returns the highest one that any member has applied.
func (w *witness) revision() int64 {
	highest := w.stored.Revision()
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

// caughtUp waits until all that is in etcd by now is recorded.
func (w *witness) caughtUp(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err := w.stored.CatchUp(ctx)
	require.NoError(t, err)
}

// left returns the tickets that are still there.
func (w *witness) left() (left []*ticket) {
	w.lock()
	defer w.mu.Unlock()
	return w.timeline.left()
}

// there reports whether tickets still exist, as far as is recorded.
func (w *witness) there(ids []ticketID) bool {
	w.lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if t := w.tickets[id]; t != nil && t.deleted != never {
			return false
		}
	}
	return true
}
