package proof_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/coord"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

// backRun is users of everything in a cluster that goes back.
type backRun struct {
	*crowd
	fleet   *fleet
	once    *onceRun
	barrier *barrierRun
	group   *groupRun
	over    chan struct{}
	quiet   atomic.Bool // nobody visits the group

	mu     sync.Mutex
	passed map[int]bool // the latch, by process
	early  int          // calls of Wait that returned before the last arrival
	opened bool         // the latch
}

// A cluster that goes back has two owners for as long as nobody has noticed. But all do notice, members join again, and
// from then on everything is as promised, by the history of what is there now.
func TestAClusterThatGoesBack(t *testing.T) {
	eachSeed(t, stormBack, 1)
}

func stormBack(t *testing.T, seed uint64) {
	f := newFleet(t, seed, 16, crowdTTL)
	c := crowdIn(f.scene)
	over := make(chan struct{})
	b := &backRun{
		crowd: c, fleet: f, over: over, passed: map[int]bool{},
		once:    &onceRun{crowd: c, over: over},
		barrier: &barrierRun{crowd: c, over: over, parties: 3},
		group:   &groupRun{crowd: c, over: over, observed: map[*caller][]string{}},
	}
	c.behave = b.use
	c.fill()
	for i := range 3 {
		f.join(fmt.Sprint("m", i))
	}
	rounds := 1
	if b.long {
		rounds = 3
	}
	var noticed int64
	for range rounds {
		noticed = b.goBack()
		f.rest()
		b.quiet.Store(true)
		b.group.rest()
		b.quiet.Store(false)
		b.passLatch()
		f.check(noticed)
	}
	close(over)
	for _, p := range b.present {
		p.crash() // a good end: etcd can be reached
	}
	f.end()
	history := b.finish()
	checkOnce(t, history, b.once.values, noticed)
	b.barrier.check(history, noticed)
	clear(b.group.observed)
	b.group.check(history)
	t.Logf("%d values, %d calls of Await, %d beliefs", len(b.once.values), len(b.barrier.calls), len(b.group.beliefs))
}

// use is what a process does.
func (b *backRun) use(p *caller) {
	ctx, stop := context.WithCancel(p.ctx)
	defer stop()
	var calling sync.WaitGroup
	repeat := func(call func()) {
		calling.Go(func() {
			for ctx.Err() == nil && !ended(b.over) {
				call()
				pause(ctx, 200*time.Millisecond)
			}
		})
	}
	calling.Go(func() { b.once.call(p) })
	calling.Go(func() { b.group.keep(p) })
	calling.Go(func() { b.group.observe(p) })
	o, l := coord.NewOnce(p.sessions, "x"), coord.NewLatch(p.sessions, "x", arrivals)
	repeat(func() {
		if rand.IntN(5) == 0 {
			_ = o.Reset(ctx)
		}
	})
	repeat(func() { b.barrier.await(ctx, p, callLimit) })
	repeat(func() {
		if !b.quiet.Load() {
			b.group.visit(p)
		}
	})
	repeat(func() { _ = l.Arrive(ctx, fmt.Sprint(rand.IntN(arrivals-1))) }) // the last one does not come yet
	repeat(func() { b.wait(ctx, p, l) })
	calling.Wait()
}

// wait waits at the latch.
func (b *backRun) wait(ctx context.Context, p *caller, l *coord.Latch) {
	age := b.age.Load()
	if l.Wait(ctx) != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.opened && b.age.steady(age) {
		b.early++
	}
	if b.opened {
		b.passed[p.number] = true
	}
}

// goBack replaces all data by older data, or none, and returns the revision at which all have noticed.
func (b *backRun) goBack() (noticed int64) {
	b.grow()
	snapshot, err := b.cluster.Snapshot(b.t.Context())
	require.NoError(b.t, err)
	before := b.leases()
	b.pause(time.Second, 2*time.Second)
	b.mu.Lock()
	b.age.Add(1)
	b.opened = false
	b.mu.Unlock()
	b.witness.Stop()
	var opts []embedtest.RestoreOption
	if b.random.IntN(2) == 0 {
		opts = append(opts, embedtest.NewClusterID())
	}
	if b.random.IntN(3) == 0 {
		require.NoError(b.t, b.cluster.Wipe(b.t.Context(), opts...))
	} else {
		require.NoError(b.t, b.cluster.Restore(b.t.Context(), snapshot, opts...))
	}
	b.scene.witness = b.cluster.Record()
	require.Eventually(b.t, func() bool { return b.allNoticed(before) }, patience, 20*time.Millisecond, "a session lives in what is gone")
	noticed = b.upTo()
	b.forget()
	b.age.Add(1)
	return noticed
}

// grow makes the cluster older than one that was just restored: it elects leaders. The revision alone would not show
// that the cluster has gone back, since other clients raise it soon.
func (b *backRun) grow() {
	for ctx := b.t.Context(); ; {
		term := uint64(0)
		b.must("term", func(ctx context.Context) error {
			answer, err := b.client.Get(ctx, probe, clientv3.WithCountOnly())
			if err == nil {
				term = answer.Header.RaftTerm
			}
			return err
		})
		if term >= 6 {
			return
		}
		members := b.cluster.Members()
		if len(members) == 1 {
			b.down(members[0], (*embedtest.Member).Kill)()
			continue
		}
		leader, err := b.cluster.WaitLeader(ctx)
		require.NoError(b.t, err)
		require.NoError(b.t, b.cluster.MoveLeader(ctx, members[(slices.Index(members, leader)+1)%len(members)]))
	}
}

func (b *backRun) leases() map[clientv3.LeaseID]bool {
	leases := map[clientv3.LeaseID]bool{}
	b.must("leases", func(ctx context.Context) error {
		answer, err := b.client.Leases(ctx)
		if err != nil {
			return err
		}
		for _, l := range answer.Leases {
			leases[l.ID] = true
		}
		return nil
	})
	return leases
}

// allNoticed reports whether all sessions are in the data that are there now, and nothing of those before is.
func (b *backRun) allNoticed(before map[clientv3.LeaseID]bool) bool {
	leases := b.leases()
	var keepers []*session.Keeper
	for _, p := range b.present {
		keepers = append(keepers, p.sessions)
	}
	for _, m := range b.fleet.members {
		keepers = append(keepers, m.sessions)
	}
	for _, k := range keepers {
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
		s, err := k.Session(ctx)
		cancel()
		if err != nil || !leases[s.Lease()] || before[s.Lease()] {
			return false
		}
	}
	maps.DeleteFunc(before, func(id clientv3.LeaseID, _ bool) bool { return !leases[id] })
	return len(before) == 0
}

// forget forgets what was before.
func (b *backRun) forget() {
	b.fleet.mu.Lock()
	clear(b.fleet.last)
	b.fleet.mu.Unlock()
	b.once.mu.Lock()
	b.once.values, b.once.last = nil, nil
	b.once.mu.Unlock()
	b.barrier.mu.Lock()
	b.barrier.calls = slices.DeleteFunc(b.barrier.calls, func(c awaitCall) bool { return !c.early })
	b.barrier.mu.Unlock()
	b.group.mu.Lock()
	b.group.beliefs, b.group.readings = nil, nil
	b.group.mu.Unlock()
}

// passLatch opens the latch, which all then pass, and closes it again.
func (b *backRun) passLatch() {
	l := coord.NewLatch(keepQuiet(b.t, b.client), "x", arrivals)
	for i := range arrivals - 1 {
		require.NoError(b.t, l.Arrive(b.t.Context(), fmt.Sprint(i)))
	}
	b.mu.Lock()
	require.Zero(b.t, b.early, "calls of Wait have returned before the last arrival")
	clear(b.passed)
	b.opened = true
	b.mu.Unlock()
	require.NoError(b.t, l.Arrive(b.t.Context(), "the last"))
	require.Eventually(b.t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.passed) == len(b.present)
	}, patience, 20*time.Millisecond, "a call of Wait does not return")
	require.NoError(b.t, l.Reset(b.t.Context()))
}
