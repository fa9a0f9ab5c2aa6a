package proof_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/embedtest"
)

// trouble is one thing that goes wrong: it returns how to mend it.
type trouble struct {
	name string
	make func(n *nemesis, ctx context.Context) (mend func())
}

var (
	// methods are all that the library calls, and streams those that are no single requests.
	methods = []string{"Txn", "Range", "LeaseGrant", "LeaseRevoke"}
	streams = []string{"LeaseKeepAlive", "Watch"}

	// passing are refusals that are over in a moment.
	passing = []error{
		rpctypes.ErrTooManyRequests, rpctypes.ErrNoLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrTimeout,
		rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrStopped,
	}
)

// troubles of networks and of single requests.
var troubles = []trouble{
	{"black hole", func(n *nemesis, _ context.Context) func() {
		l := n.life()
		l.link.Blackhole(n.some()...)
		return func() { l.link.Heal() }
	}},
	{"cut", func(n *nemesis, _ context.Context) func() {
		l := n.life()
		l.link.Cut(n.some()...)
		return func() { l.link.Heal() }
	}},
	{"delay", func(n *nemesis, _ context.Context) func() {
		l := n.life()
		l.link.Delay(n.upTo(150*time.Millisecond), n.some()...)
		return func() { l.link.Heal() }
	}},
	{"slow, then silent", func(n *nemesis, ctx context.Context) func() {
		l := n.life()
		l.link.Delay(ttl/4 + n.upTo(ttl/8)) // each way: renewals are answered late
		wait(ctx, ttl)
		l.link.Blackhole()
		wait(ctx, ttl) // long enough for the lease to be over
		return func() { l.link.Heal() }
	}},
	{"lost replies", func(n *nemesis, _ context.Context) func() {
		return n.cluster.LoseReply(pick(n, methods), embedtest.Times(1+n.random.IntN(5))).Heal
	}},
	{"lost requests", func(n *nemesis, _ context.Context) func() {
		return n.cluster.LoseRequest(pick(n, methods), embedtest.Times(1+n.random.IntN(5))).Heal
	}},
	{"some replies lost", func(n *nemesis, _ context.Context) func() {
		return n.cluster.LoseReply(pick(n, append(streams, methods...)), n.oneIn(2+n.random.IntN(30))).Heal
	}},
	{"some requests lost", func(n *nemesis, _ context.Context) func() {
		return n.cluster.LoseRequest(pick(n, append(streams, methods...)), n.oneIn(2+n.random.IntN(30))).Heal
	}},
	{"slow answers", func(n *nemesis, _ context.Context) func() {
		return n.cluster.Delay(pick(n, methods), n.upTo(500*time.Millisecond), embedtest.Times(20)).Heal
	}},
	{"brown-out", func(n *nemesis, _ context.Context) func() {
		long := n.upTo(600 * time.Millisecond)
		var mend []func()
		for _, method := range []string{"Txn", "Range", "LeaseKeepAlive"} {
			if n.random.IntN(3) > 0 {
				mend = append(mend, n.cluster.Delay(method, long).Heal)
			}
		}
		return func() {
			for _, f := range mend {
				f()
			}
		}
	}},
	{"late requests", func(n *nemesis, _ context.Context) func() {
		return n.cluster.Hold("Txn", n.oneIn(2+n.random.IntN(10)), embedtest.Times(20)).Heal
	}},
	{"passing refusals", func(n *nemesis, _ context.Context) func() {
		return n.cluster.Refuse(pick(n, methods[:2]), pick(n, passing), embedtest.Times(10)).Heal
	}},
	{"some refused", func(n *nemesis, _ context.Context) func() {
		return n.cluster.Refuse(pick(n, methods), pick(n, passing), n.oneIn(2+n.random.IntN(10))).Heal
	}},
	{"unanswered renewals", func(n *nemesis, _ context.Context) func() { return n.cluster.DropKeepAlives().Heal }},
	{"late renewals", func(n *nemesis, _ context.Context) func() {
		return n.cluster.Delay("LeaseKeepAlive", ttl/2).Heal
	}},
	{"late events", func(n *nemesis, _ context.Context) func() {
		return n.cluster.Delay("Watch", n.upTo(500*time.Millisecond), embedtest.Times(10)).Heal
	}},
	{"swallowed events", func(n *nemesis, _ context.Context) func() {
		return n.cluster.SwallowWatchEvents(embedtest.Times(3)).Heal
	}},
	{"broken watches", func(n *nemesis, _ context.Context) func() {
		return n.cluster.Refuse("Watch", errors.New("broken"), embedtest.Times(1+n.random.IntN(3))).Heal
	}},
	{"no space", alarm(etcdserverpb.AlarmType_NOSPACE)},
	{"corrupt", alarm(etcdserverpb.AlarmType_CORRUPT)},
	{"compaction", func(n *nemesis, ctx context.Context) func() {
		_, _ = n.admin.Compact(ctx, n.witness.stored.Revision()) // not more, or the history has a gap
		return func() {}
	}},
}

func alarm(which etcdserverpb.AlarmType) func(n *nemesis, ctx context.Context) func() {
	return func(n *nemesis, ctx context.Context) func() {
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if server := n.member().Server(); server != nil { // it may be down
			_, _ = server.Alarm(bounded, &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: which})
		}
		return n.disarm
	}
}

func pick[T any](n *nemesis, of []T) T { return of[n.random.IntN(len(of))] }

func (n *nemesis) upTo(most time.Duration) time.Duration {
	return time.Duration(n.random.Int64N(int64(most)))
}

// oneIn makes a fault bite one out of so many, by chance.
func (n *nemesis) oneIn(many int) embedtest.FaultOption {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(n.random.Uint64(), 0))
	return embedtest.When(func(any) bool {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(many) == 0
	})
}
