package proof_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

// nemesis makes things go wrong, several at a time, and heals them again.
type nemesis struct {
	returning sync.Map // of a mutex for each member

	cluster *embedtest.Cluster
	admin   *clientv3.Client
	workers []*worker
	history *history
	random  *rand.Rand
	log     func(format string, args ...any)
}

// trouble is one thing that goes wrong: it returns how to mend it.
type trouble struct {
	name string
	make func(n *nemesis, ctx context.Context) (mend func())
}

// methods are all that the library calls.
var methods = []string{"Txn", "Range", "LeaseGrant", "LeaseRevoke"}

var troubles = []trouble{
	{"black hole", func(n *nemesis, _ context.Context) func() {
		w := n.worker()
		w.link.Blackhole(n.some()...)
		return func() { w.link.Heal() }
	}},
	{"cut", func(n *nemesis, _ context.Context) func() {
		w := n.worker()
		w.link.Cut(n.some()...)
		return func() { w.link.Heal() }
	}},
	{"delay", func(n *nemesis, _ context.Context) func() {
		w := n.worker()
		w.link.Delay(time.Duration(n.random.IntN(150))*time.Millisecond, n.some()...)
		return func() { w.link.Heal() }
	}},
	{"lost replies", func(n *nemesis, _ context.Context) func() {
		return n.cluster.LoseReply(methods[n.random.IntN(len(methods))], embedtest.Times(1+n.random.IntN(5))).Heal
	}},
	{"lost requests", func(n *nemesis, _ context.Context) func() {
		return n.cluster.LoseRequest(methods[n.random.IntN(len(methods))], embedtest.Times(1+n.random.IntN(5))).Heal
	}},
	{"slow answers", func(n *nemesis, _ context.Context) func() {
		return n.cluster.Delay(methods[n.random.IntN(len(methods))], time.Duration(n.random.IntN(500))*time.Millisecond, embedtest.Times(20)).Heal
	}},
	{"too many requests", func(n *nemesis, _ context.Context) func() {
		return n.cluster.Refuse(methods[n.random.IntN(2)], rpctypes.ErrTooManyRequests, embedtest.Times(10)).Heal
	}},
	{"unanswered renewals", func(n *nemesis, _ context.Context) func() { return n.cluster.DropKeepAlives().Heal }},
	{"late renewals", func(n *nemesis, _ context.Context) func() {
		return n.cluster.Delay("LeaseKeepAlive", ttl/2).Heal
	}},
	{"late events", func(n *nemesis, _ context.Context) func() {
		return n.cluster.Delay("Watch", time.Duration(n.random.IntN(500))*time.Millisecond, embedtest.Times(10)).Heal
	}},
	{"no space", func(n *nemesis, ctx context.Context) func() {
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if server := n.member().Server(); server != nil { // it may be down
			_, _ = server.Alarm(bounded, &etcdserverpb.AlarmRequest{
				Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_NOSPACE,
			})
		}
		return n.disarm
	}},
	{"swallowed events", func(n *nemesis, _ context.Context) func() {
		return n.cluster.SwallowWatchEvents(embedtest.Times(3)).Heal
	}},
	{"compaction", func(n *nemesis, ctx context.Context) func() {
		if answer, err := n.admin.Get(ctx, "x"); err == nil {
			_, _ = n.admin.Compact(ctx, answer.Header.Revision)
		}
		return func() {}
	}},
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
		s, err := n.worker().sessions.Session(bounded)
		if err != nil {
			return func() {}
		}
		n.history.strikeLease(s.Lease())
		_, _ = n.admin.Revoke(bounded, s.Lease())
		return func() {}
	}},
	{"deleted key", func(n *nemesis, ctx context.Context) func() {
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		answer, err := n.admin.Get(bounded, "etcdlock/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil || len(answer.Kvs) == 0 {
			return func() {}
		}
		key := string(answer.Kvs[n.random.IntN(len(answer.Kvs))].Key)
		n.history.strikeKey(key)
		_, _ = n.admin.Delete(bounded, key)
		return func() {}
	}},
}

// torment makes trouble until ctx ends, and mends everything.
func (n *nemesis) torment(ctx context.Context) {
	for ctx.Err() == nil {
		var mend []func()
		for range 1 + n.random.IntN(2) {
			t := troubles[n.random.IntN(len(troubles))]
			n.log("%v %s", time.Duration(n.history.now()).Round(time.Millisecond), t.name)
			mend = append(mend, t.make(n, ctx))
		}
		wait(ctx, time.Duration(100+n.random.IntN(3000))*time.Millisecond)
		var mending sync.WaitGroup // one may need another: etcd takes orders with a majority only
		for _, f := range mend {
			mending.Go(f)
		}
		mending.Wait()
		wait(ctx, time.Duration(n.random.IntN(500))*time.Millisecond)
	}
}

// disarm lets etcd write again, whatever it takes to reach it.
func (n *nemesis) disarm() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		bounded, stop := context.WithTimeout(ctx, time.Second)
		_, err := n.admin.AlarmDisarm(bounded, &clientv3.AlarmMember{})
		stop()
		if err == nil {
			return
		}
	}
	n.must(ctx.Err())
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (n *nemesis) worker() *worker { return n.workers[n.random.IntN(len(n.workers))] }

// takeDown ends a member until it is called back. One that is just coming back comes back first:
// its return would fail, and that is no fault of anybody's.
func (n *nemesis) takeDown(m *embedtest.Member, end func(*embedtest.Member)) (heal func()) {
	at, _ := n.returning.LoadOrStore(m, new(sync.Mutex))
	returning := at.(*sync.Mutex)
	returning.Lock()
	defer returning.Unlock()
	end(m)
	return func() {
		returning.Lock()
		defer returning.Unlock()
		n.must(m.Restart())
	}
}

func (n *nemesis) member() *embedtest.Member {
	members := n.cluster.Members()
	return members[n.random.IntN(len(members))]
}

// some is all members, or one.
func (n *nemesis) some() []*embedtest.Member {
	if n.random.IntN(2) == 0 {
		return nil
	}
	return []*embedtest.Member{n.member()}
}

func (n *nemesis) must(err error) {
	if err != nil {
		n.history.fail(fmt.Sprintf("the test itself: %v", err))
	}
}

func (h *history) strikeLease(lease clientv3.LeaseID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.struckLeases[lease] = h.now()
}

// strikeKey notes that what is at key is about to be deleted. Names are used again, so
// later holds of that name are let off as well.
func (h *history) strikeKey(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, struck := h.struckKeys[key]; !struck {
		h.struckKeys[key] = h.now()
	}
}

func (h *history) fail(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrong = append(h.wrong, what)
}
