package proof_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

// nemesis makes things go wrong, several at a time, and heals them again.
type nemesis struct {
	returning sync.Map // of a mutex for each member

	mu      sync.Mutex
	retired []*life

	cluster *embedtest.Cluster
	admin   *clientv3.Client
	workers []*worker
	history *history
	witness *witness
	random  *rand.Rand
	log     func(format string, args ...any)
}

// torment makes trouble until ctx ends, and mends everything.
func (n *nemesis) torment(ctx context.Context) {
	for ctx.Err() == nil {
		var mend []func()
		for range 1 + n.random.IntN(3) {
			t := pick(n, append(troubles, strikes...))
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

// life is that of one worker.
func (n *nemesis) life() *life { return n.worker().life.Load() }

func (n *nemesis) worker() *worker { return n.workers[n.random.IntN(len(n.workers))] }

// takeDown ends a member until it is called back. One that is just coming back comes back first:
// its return would fail, and that is no fault of anybody's.
func (n *nemesis) takeDown(m *embedtest.Member, end func(*embedtest.Member)) (heal func()) {
	at, _ := n.returning.LoadOrStore(m, new(sync.Mutex))
	returning := at.(*sync.Mutex)
	returning.Lock()
	defer returning.Unlock()
	n.witness.memberEnds(func() { end(m) })
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
