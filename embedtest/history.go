package embedtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

var errStopped = errors.New("the history is stopped")

// emptyRevision is that of a store to which nothing has been written.
const emptyRevision = 1

// Change is what one revision has changed: a transaction, a put, or the end of a lease with all its keys.
type Change struct {
	Revision int64
	// Events are those of a watch without previous values. They are shared: do not change them.
	Events []*clientv3.Event
	// Seen is when the change was recorded, a moment after the first member stored it.
	Seen time.Time
}

// History is the changes of all keys, as [Cluster.Record] records them. All its methods are safe for concurrent use.
type History struct {
	cluster *Cluster
	ctx     context.Context // ends with Stop
	stop    context.CancelFunc
	reading sync.WaitGroup

	mu      sync.Mutex
	changes []Change
	err     error
}

// Record records the history of all keys: every revision once, in order, from the first one on. A test compares it
// with what clients received, for example that a write took effect once although its answer was lost, or that two
// clients never had a lock at the same revision.
//
// The history is read from the stores of the members, inside their servers. So no fault, isolation or permission hides
// a change, and [Cluster.Calls] counts nothing. Members that restart or are added later are read too.
//
// It costs a goroutine for each member, and the memory for all keys and values. It ends with [History.Stop], or with the
// cluster. [Cluster.Restore] and [Cluster.Wipe] begin another history: stop the old one before, and record again
// afterwards.
func (c *Cluster) Record() *History {
	ctx, stop := context.WithCancel(context.Background())
	h := &History{cluster: c, ctx: ctx, stop: stop}
	c.historiesMu.Lock()
	defer c.historiesMu.Unlock()
	if c.histories == nil { // closed
		stop()
		return h
	}
	c.histories[h] = struct{}{}
	for _, m := range c.Members() {
		if p := m.process.Load(); p != nil {
			h.follow(p)
		}
	}
	return h
}

// recordFrom makes the histories read a member that starts. A history that begins at this moment may read it twice,
// which adds nothing.
func (c *Cluster) recordFrom(p *process) {
	c.historiesMu.Lock()
	defer c.historiesMu.Unlock()
	for h := range c.histories {
		h.follow(p)
	}
}

// stopHistories is for Close.
func (c *Cluster) stopHistories() {
	c.historiesMu.Lock()
	histories := c.histories
	c.histories = nil
	c.historiesMu.Unlock()
	for h := range histories {
		h.Stop()
	}
}

// Stop ends the recording. What has been recorded stays. It may be called more than once.
func (h *History) Stop() {
	h.cluster.historiesMu.Lock()
	delete(h.cluster.histories, h)
	h.cluster.historiesMu.Unlock()
	h.stop()
	h.reading.Wait()
}

// Changes returns the changes recorded so far of revisions higher than after. It does not wait; [History.CatchUp] does.
// The error says that etcd has compacted revisions before they were recorded. Then nothing more is recorded, and the
// changes are those before the gap.
func (h *History) Changes(after int64) ([]Change, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first, _ := slices.BinarySearchFunc(h.changes, after+1, func(c Change, revision int64) int { return cmp.Compare(c.Revision, revision) })
	return slices.Clip(h.changes[first:]), h.err
}

// Revision returns the revision up to which the history is recorded, 1 before the first change. A compaction up to it
// leaves no gap.
func (h *History) Revision() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.revision()
}

// revision requires mu.
func (h *History) revision() int64 {
	if len(h.changes) == 0 {
		return emptyRevision
	}
	return h.changes[len(h.changes)-1].Revision
}

// CatchUp waits until everything is recorded that etcd answered before the call, and returns the revision of that. It
// asks the leader, so it needs a quorum, and waits for one. It fails when ctx ends, when the cluster is closed, when the
// history is stopped, and as [History.Changes] does.
func (h *History) CatchUp(ctx context.Context) (revision int64, err error) {
	c := h.cluster
	err = c.poll(ctx, func() bool {
		server, err := c.leaderServer(ctx)
		if err != nil || server.LinearizableReadNotify(ctx) != nil {
			return false // again, as long as ctx lasts
		}
		revision = server.KV().Rev()
		return true
	})
	if err == nil {
		err = c.poll(ctx, func() bool { return h.Revision() >= revision || h.ended() != nil })
	}
	if h.Revision() < revision {
		err = cmp.Or(err, h.ended())
	}
	if err != nil {
		return 0, fmt.Errorf("embedtest: catch up with the history: %w", err)
	}
	return revision, nil
}

// ended returns why nothing more is recorded, or nil.
func (h *History) ended() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil && h.ctx.Err() != nil {
		return errStopped
	}
	return h.err
}

// follow requires historiesMu, under which Stop takes the history off the list before it waits.
func (h *History) follow(p *process) {
	h.reading.Go(func() {
		stream := p.server().KV().NewWatchStream()
		defer stream.Close()
		for again := true; again; {
			// Not from the next revision: if that is the compacted one, etcd allows it, and a deletion is missing.
			_, err := stream.Watch(h.ctx, clientv3.AutoWatchID, []byte{0}, []byte{}, h.Revision())
			again = err == nil && h.receive(p, stream.Chan())
		}
	})
}

// receive records what a member stores. It reports whether the watch was cancelled because of a compaction, and another one
// can go on: another member was faster.
func (h *History) receive(p *process, answers <-chan mvcc.WatchResponse) (again bool) {
	for {
		select {
		case answer := <-answers:
			if h.add(answer); answer.CompactRevision > 0 {
				return h.ended() == nil
			}
		case <-p.stopping:
			return false
		case <-h.ctx.Done():
			return false
		}
	}
}

// add adds what no other member has told yet. An answer has all events of each of its revisions.
func (h *History) add(answer mvcc.WatchResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.revision()
	if h.err == nil && answer.CompactRevision > before {
		h.err = fmt.Errorf("embedtest: revisions after %d were compacted, up to %d, before they were recorded", before, answer.CompactRevision)
	}
	if h.err != nil {
		return
	}
	now := time.Now()
	for _, e := range answer.Events {
		revision := e.Kv.ModRevision
		if revision <= before {
			continue
		}
		if revision > h.revision() {
			h.changes = append(h.changes, Change{Revision: revision, Seen: now})
		}
		last := &h.changes[len(h.changes)-1]
		last.Events = append(last.Events, e)
	}
}
