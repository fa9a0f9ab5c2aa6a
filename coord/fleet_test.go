package coord_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/coord"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// ttl of the members of a fleet.
const ttl = 4 * time.Second

// fleet is members that share shards, each with a client of its own, and how long shards are without a work.
type fleet struct {
	tb      testing.TB
	cluster *embedtest.Cluster
	shards  int
	members []*fleetMember // that are to be there
	last    int            // number of a member

	mu      sync.Mutex
	changed chan struct{}     // closed at the next change of works
	works   map[int]string    // by shard: the id of the member that works
	idle    map[int]time.Time // by shard: since when no member works
	gaps    []time.Duration   // that are over
}

type fleetMember struct {
	id     string
	link   *embedtest.Link
	cancel context.CancelFunc
	over   chan struct{}
}

// newFleet returns a fleet of n members that share all shards.
func newFleet(tb testing.TB, shards, n int) *fleet {
	tb.Helper()
	f := &fleet{tb: tb, cluster: embedtest.Start(tb), shards: shards, changed: make(chan struct{}), works: map[int]string{}, idle: map[int]time.Time{}}
	tb.Cleanup(func() {
		for _, m := range slices.Clone(f.members) {
			f.leave(m)
		}
	})
	for range n {
		f.add()
	}
	f.rest()
	f.takeGaps()
	return f
}

// add adds a member.
func (f *fleet) add() {
	f.last++
	f.join(fmt.Sprint("m", f.last))
}

func (f *fleet) join(id string) {
	client, link, err := f.cluster.NewLink()
	require.NoError(f.tb, err)
	ctx, cancel := context.WithCancel(context.Background())
	m := &fleetMember{id: id, link: link, cancel: cancel, over: make(chan struct{})}
	f.members = append(f.members, m)
	go func() {
		defer close(m.over)
		f.run(ctx, client, id)
		link.Close()
	}()
}

func (f *fleet) run(ctx context.Context, client *clientv3.Client, id string) {
	sessions := session.Keep(client, session.WithTTL(ttl))
	_ = coord.NewShards(sessions, "x", f.shards).Run(ctx, id, func(ctx context.Context, _ *etcdlock.Hold, shard int) error {
		f.begin(id, shard)
		defer f.end(id, shard, time.Now)
		<-ctx.Done()
		return nil
	})
	closing, done := context.WithTimeout(context.Background(), ttl)
	defer done()
	_ = sessions.Close(closing)
	_ = client.Close()
}

func (f *fleet) begin(id string, shard int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if since, ok := f.idle[shard]; ok {
		f.gaps = append(f.gaps, time.Since(since))
		delete(f.idle, shard)
	}
	f.works[shard] = id
	f.notify()
}

// end ends the work of a member, unless it has crashed before.
func (f *fleet) end(id string, shard int, at func() time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.works[shard] == id {
		delete(f.works, shard)
		f.idle[shard] = at()
		f.notify()
	}
}

func (f *fleet) notify() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fleet) drop(m *fleetMember) {
	f.members = slices.DeleteFunc(f.members, func(other *fleetMember) bool { return other == m })
}

func (f *fleet) leave(m *fleetMember) {
	f.drop(m)
	m.cancel()
	<-m.over
}

// crash cuts a member off. Its works count as ended from now on.
func (f *fleet) crash(m *fleetMember) {
	f.drop(m)
	m.link.Blackhole()
	now := time.Now()
	for shard := range f.shards {
		f.end(m.id, shard, func() time.Time { return now })
	}
	m.cancel()
}

// rest waits until all shards are worked on, by each member as many as its share.
func (f *fleet) rest() {
	f.tb.Helper()
	late := time.After(patience)
	for {
		f.mu.Lock()
		shares, changed := map[string]int{}, f.changed
		for _, id := range f.works {
			shares[id]++
		}
		f.mu.Unlock()
		if f.shared(shares) {
			return
		}
		select {
		case <-changed:
		case <-late:
			require.Fail(f.tb, "the fleet does not come to rest", "%v", shares)
		}
	}
}

// shared reports whether the members share all shards evenly.
func (f *fleet) shared(shares map[string]int) bool {
	n, total := len(f.members), 0
	for _, m := range f.members {
		share := shares[m.id]
		if total += share; share < f.shards/n || share > (f.shards+n-1)/n {
			return false
		}
	}
	return total == f.shards
}

// takeGaps returns how long shards were without a work since the last call.
func (f *fleet) takeGaps() (gaps []time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	gaps, f.gaps = f.gaps, nil
	return gaps
}

// revert makes the fleet as large again as it was before the change.
func (f *fleet) revert(c change) {
	if c.undo != nil {
		c.undo(f)
		f.rest()
		f.takeGaps()
	}
}

// requests returns how many etcd has got, without renewals.
func (f *fleet) requests() (n int64) {
	for _, method := range []string{"Range", "Put", "Txn", "DeleteRange", "Watch", "LeaseGrant", "LeaseRevoke"} {
		n += f.cluster.Calls(method)
	}
	return n
}
