package proof_test

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

// strikes are troubles of members, and what people do to locks and programs.
var strikes = []trouble{
	{"killed member", func(n *nemesis, _ context.Context) func() {
		return n.takeDown(n.member(), (*embedtest.Member).Kill)
	}},
	{"stopped member", func(n *nemesis, _ context.Context) func() {
		return n.takeDown(n.member(), (*embedtest.Member).Stop)
	}},
	{"isolated member", func(n *nemesis, _ context.Context) func() {
		m := n.member()
		m.Isolate()
		return m.Heal
	}},
	{"isolated leader", func(n *nemesis, _ context.Context) func() {
		m := n.cluster.Leader()
		if m == nil {
			return func() {}
		}
		m.Isolate()
		return m.Heal
	}},
	{"moved leader", func(n *nemesis, ctx context.Context) func() {
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_ = n.cluster.MoveLeader(bounded, n.member()) // it may be down, or the leader
		return func() {}
	}},
	{"revoked lease", func(n *nemesis, ctx context.Context) func() {
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		s, err := n.life().sessions.Session(bounded)
		if err != nil {
			return func() {}
		}
		strike(n.history, n.history.leases, s.Lease())
		_, _ = n.admin.Revoke(bounded, s.Lease())
		return func() {}
	}},
	{"deleted key", func(n *nemesis, ctx context.Context) func() {
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if id, some := n.ticket(); some {
			strike(n.history, n.history.struck, id)
			_, _ = n.admin.Txn(bounded).If(clientv3.Compare(clientv3.CreateRevision(id.key), "=", id.created)).
				Then(clientv3.OpDelete(id.key)).Commit()
		}
		return func() {}
	}},
	{"forced release", func(n *nemesis, ctx context.Context) func() {
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		names := append([]string{"leader", "local", "kept", "slow", "pool"}, plainNames...)
		queue, err := etcdlock.Inspect(bounded, n.admin, pick(n, names))
		if err == nil && len(queue.Places) > 0 {
			place := queue.Places[n.random.IntN(min(3, len(queue.Places)))]
			strike(n.history, n.history.struck, ticketID{place.Key, int64(place.Token)})
			_ = etcdlock.ForceRelease(bounded, n.admin, place.Key, place.Token)
		}
		return func() {}
	}},
	{"closed client", func(n *nemesis, _ context.Context) func() {
		w := n.worker()
		l := w.life.Load()
		closeClient(l.client)
		l.closed.Store(n.history.now())
		return func() { n.revive(w, l) }
	}},
	{"closed session", func(n *nemesis, ctx context.Context) func() {
		w := n.worker()
		l := w.life.Load()
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		var lease clientv3.LeaseID
		if s, err := l.sessions.Session(bounded); err == nil {
			lease = s.Lease()
		}
		l.closed.Store(n.history.now())
		var err error
		began, done := w.during(bounded, l, "closing", func() { err = l.sessions.Close(bounded) })
		if err == nil && lease != 0 {
			noted(n.history, &n.history.closings, closing{lease, began, done})
		}
		return func() { n.revive(w, l) }
	}},
}

// ticket picks one that exists.
func (n *nemesis) ticket() (id ticketID, some bool) {
	left := n.witness.left()
	if len(left) == 0 {
		return id, false
	}
	return left[n.random.IntN(len(left))].ticketID, true
}

// revive gives a worker a new client, if the one it has is still the given one.
func (n *nemesis) revive(w *worker, old *life) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for w.life.Load() == old {
		client, link, err := n.cluster.NewLink()
		if err == nil {
			next := newLife(client, link)
			if w.life.CompareAndSwap(old, next) {
				n.retire(old)
			} else {
				n.retire(next)
			}
			return
		}
		if wait(ctx, 50*time.Millisecond); ctx.Err() != nil { // with a password it may fail in a storm
			n.must(err)
			return
		}
	}
}

// retire keeps a life until it is closed with all others.
func (n *nemesis) retire(l *life) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.retired = append(n.retired, l)
}
