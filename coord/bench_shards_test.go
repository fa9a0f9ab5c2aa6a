package coord_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var gaps = flag.Bool("gaps", false, "check how long shards are without an owner; three minutes on a quiet machine")

// change is what happens to a fleet.
type change struct {
	name  string
	apply func(f *fleet)
	undo  func(f *fleet) // nil: nothing is to be undone

	// without bounds how long a shard is without a work: the settle time, after a crash also the TTL, and a second.
	without time.Duration
}

var changes = []change{
	{"join", (*fleet).add, func(f *fleet) { f.leave(f.members[len(f.members)-1]) }, 2 * time.Second},
	{"leave", func(f *fleet) { f.leave(f.members[0]) }, (*fleet).add, 2 * time.Second},
	{"crash", func(f *fleet) { f.crash(f.members[0]) }, (*fleet).add, 2*time.Second + ttl},
	{"restart", func(f *fleet) {
		m := f.members[0]
		f.leave(m)
		f.join(m.id)
	}, nil, 2 * time.Second},
}

// eachSize calls do with each change of fleets of each size.
func eachSize(do func(name string, c change, shards, members int)) {
	for _, c := range changes {
		for _, shards := range []int{16, 64, 256, 512} {
			for _, members := range []int{3, 10, 20} {
				do(fmt.Sprintf("change=%s/shards=%d/members=%d", c.name, shards, members), c, shards, members)
			}
		}
	}
}

// A member joins, leaves, crashes or is restarted, and all others stay. How long shards were without a work is reported; after a
// crash, since the member was cut off.
func BenchmarkRebalance(b *testing.B) {
	eachSize(func(name string, c change, shards, members int) {
		b.Run(name, func(b *testing.B) {
			f := newFleet(b, shards, members)
			var without []time.Duration
			requests, entries, elapsed := int64(0), uint64(0), time.Duration(0)
			for range b.N {
				r, e, began := f.requests(), f.cluster.AppliedIndex(), time.Now()
				c.apply(f)
				f.rest()
				requests, entries, elapsed = requests+f.requests()-r, entries+f.cluster.AppliedIndex()-e, elapsed+time.Since(began)
				without = append(without, f.takeGaps()...)
				f.revert(c)
			}
			if slices.Sort(without); len(without) == 0 {
				b.Skip("nothing moves")
			}
			moves := float64(len(without))
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(elapsed.Milliseconds())/float64(b.N), "ms/op")
			b.ReportMetric(float64(without[len(without)/2].Milliseconds()), "gap-p50-ms")
			b.ReportMetric(float64(without[len(without)-1].Milliseconds()), "gap-max-ms")
			b.ReportMetric(moves/float64(b.N), "moves/op")
			b.ReportMetric(float64(requests)/moves, "requests/move")
			b.ReportMetric(float64(entries)/moves, "entries/move")
		})
	})
}

// The bound that the package promises if etcd and the members answer at once. A busy machine may not keep it.
func TestNoShardIsWithoutAnOwnerForLongerThanPromised(t *testing.T) {
	if !*gaps {
		t.Skip("it needs a quiet machine: -gaps")
	}
	eachSize(func(name string, c change, shards, members int) {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, shards, members)
			c.apply(f)
			f.rest()
			for _, gap := range f.takeGaps() {
				require.LessOrEqual(t, gap, c.without)
			}
		})
	})
}

// All that members do while nothing happens, for ten seconds, after which each has compared its keys with etcd.
func BenchmarkIdleMembers(b *testing.B) {
	for _, shards := range []int{64, 512} {
		b.Run(fmt.Sprintf("shards=%d", shards), func(b *testing.B) {
			f := newFleet(b, shards, 3)
			<-time.After(2 * time.Second) // until the watches of holds have begun
			before := f.requests()
			for range b.N {
				<-time.After(10 * time.Second)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(f.requests()-before)/float64(b.N)/10, "requests/s")
		})
	}
}
