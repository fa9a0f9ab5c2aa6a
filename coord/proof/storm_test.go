package proof_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestShardsInStorms(t *testing.T) { eachSeed(t, stormShards, 2, 3) }

// fixed are the seeds from 1 of which a normal run has some: one member, three, and one with passwords. Their storms are short.
const fixed = uint64(3)

// eachSeed runs raise with the seeds that the flags choose, or with some of the fixed ones.
func eachSeed(t *testing.T, raise func(t *testing.T, seed uint64), some ...uint64) {
	switch {
	case *seed != 0:
		raise(t, *seed)
	case *chaos == 0:
		t.Parallel()
		for _, seed := range some {
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
				t.Parallel()
				raise(t, seed)
			})
		}
	default:
		for end := time.Now().Add(*chaos); time.Now().Before(end) && !t.Failed(); {
			seed := rand.Uint64N(1<<32) + fixed + 1
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { raise(t, seed) })
		}
	}
}

// stormShards raises random troubles, and then waits for rest.
func stormShards(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	shards, most := 16<<random.IntN(3), 3+random.IntN(6)
	if seed > fixed {
		shards, most = 16<<random.IntN(5), 3+random.IntN(14)
	}
	ttl := crowdTTL
	if shards > 64 { // on a machine for all members
		ttl = 5 * time.Second
	}
	f := newFleet(t, seed, shards, ttl)
	f.stop = 50 * time.Millisecond
	heaviest := 1 + int(seed%2)*2 // of every other storm the members have different weights
	t.Logf("%d shards, up to %d members, of weights up to %d", shards, most, heaviest)
	next := 0
	join := func() {
		next++
		f.joinWith(fmt.Sprint("m", next), 1+random.IntN(heaviest))
	}
	for range most / 2 {
		join()
	}
	done := func() {}
	f.storm(trouble{"come and go", func(*scene) func() {
		for range 1 + random.IntN(4) {
			switch kind := random.IntN(4); {
			case kind <= 1 && len(f.members) < most || len(f.members) < 2:
				join()
			case kind == 2:
				m := pick(f.scene, f.members)
				f.drop(m)
				if m.link != nil {
					m.link.Heal()
				}
				m.cancel(errLeave)
			default:
				f.crash(pick(f.scene, f.members))
			}
		}
		return done
	}})
	f.healLinks()
	f.rest()
	t.Logf("etcd refused %d times", f.refused.Load())
	f.finish()
}

// needed is how many shards have to move from members that are there, of which each owns so many.
func needed(owned []int, shards int) (moves int) {
	floor, more := shards/len(owned), shards%len(owned)
	for _, n := range owned {
		if n > floor && more > 0 { // may keep one more
			more--
			n--
		}
		moves += max(n-floor, 0)
	}
	return moves
}

func TestSingleChangeMovesNoMoreThanBalanceNeeds(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 0))
	f := newFleet(t, 1, 32, 10*time.Second)
	f.join("m0")
	owners := f.rest()
	for change := range 8 {
		var gone string
		before := f.upTo()
		switch n := len(f.members); {
		case n < 3 || n < 8 && random.IntN(3) > 0:
			f.join(fmt.Sprint("m", change+1))
		case random.IntN(2) == 0:
			m := f.members[random.IntN(n)]
			gone = m.id
			f.leave(m)
		default: // its lease is over at once
			m := f.members[random.IntN(n)]
			gone = m.id
			s, err := m.sessions.Session(t.Context())
			require.NoError(t, err)
			f.crash(m)
			_, err = f.client.Revoke(t.Context(), s.Lease())
			require.NoError(t, err)
		}
		count := map[string]int{}
		for _, id := range owners {
			count[id]++
		}
		var owned []int
		for _, m := range f.members {
			owned = append(owned, count[m.id])
		}
		owners = f.rest()
		changes, _, _ := f.replay(before, f.upTo())
		moves := 0
		for _, c := range changes {
			if c.from != gone {
				moves++
			}
		}
		require.Equal(t, needed(owned, f.shards), moves, "change %d: %v were owned, %v has gone, then %v", change, owned, gone, changes)
	}
	f.finish()
}

func TestRollingRestartMovesEachShardTwiceAtMost(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, 32, 10*time.Second)
	for i := range 4 {
		f.join(fmt.Sprint("m", i))
		f.rest()
	}
	before := f.upTo()
	for i := range 4 {
		f.leave(f.members[0])
		f.rest()
		f.join(fmt.Sprint("m", i))
		f.rest()
	}
	changes, _, _ := f.replay(before, f.upTo())
	moves := make([]int, 32)
	for _, c := range changes {
		moves[c.shard]++
	}
	for shard, n := range moves {
		require.LessOrEqual(t, n, 2, "shard %d", shard)
	}
	f.finish()
}
