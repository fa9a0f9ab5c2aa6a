package proof_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStorms(t *testing.T) { eachSeed(t, storm) }

// eachSeed runs raise with the seeds that the flags choose.
func eachSeed(t *testing.T, raise func(t *testing.T, seed uint64)) {
	switch {
	case *seed != 0:
		raise(t, *seed)
	case *chaos == 0:
		for _, seed := range []uint64{1, 2, 3} {
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
				t.Parallel()
				raise(t, seed)
			})
		}
	default:
		for end := time.Now().Add(*chaos); time.Now().Before(end) && !t.Failed(); {
			seed := rand.Uint64N(1<<32) + 4
			t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { raise(t, seed) })
		}
	}
}

// storm raises random troubles, and then waits for rest.
func storm(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	shards, most, troubles := 16<<random.IntN(3), 3+random.IntN(6), 12
	if *chaos > 0 || seed > 3 {
		shards, most, troubles = 16<<random.IntN(6), 3+random.IntN(18), 40
	}
	ttl := 2 * time.Second
	if shards > 64 { // on a machine for all members
		ttl = 5 * time.Second
	}
	f := newFleet(t, shards, ttl)
	f.stop = 50 * time.Millisecond
	heaviest := 1 + int(seed%2)*2 // of every other storm the members have different weights
	t.Logf("%d shards, up to %d members, of weights up to %d", shards, most, heaviest)
	w := observe(t, f.client)
	next := 0
	join := func() {
		next++
		f.joinWith(fmt.Sprint("m", next), 1+random.IntN(heaviest))
	}
	for range most / 2 {
		join()
	}
	var hanging []*member
	for range troubles {
		time.Sleep(time.Duration(random.Int64N(int64(600 * time.Millisecond)))) //nolint:forbidigo // between troubles
		one := func() *member { return f.members[random.IntN(len(f.members))] }
		switch kind := random.IntN(6); {
		case kind <= 1 && len(f.members) < most || len(f.members) < 2:
			join()
		case kind == 2:
			m := one()
			f.drop(m)
			m.link.Heal()
			m.cancel(errLeave)
		case kind == 3:
			f.crash(one())
		case kind == 4: // shorter or longer than its session can stand
			m := one()
			m.link.Blackhole()
			hanging = append(hanging, m)
		default:
			m := one()
			m.link.Delay(time.Duration(random.Int64N(int64(100 * time.Millisecond))))
			hanging = append(hanging, m)
		}
		if len(hanging) > 0 && random.IntN(2) == 0 {
			hanging[0].link.Heal()
			hanging = hanging[1:]
		}
	}
	for _, m := range f.members {
		m.link.Heal()
	}
	f.rest()
	f.finish(w)
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
	f := newFleet(t, 64, 10*time.Second)
	w := observe(t, f.client)
	f.join("m0")
	owners := f.rest()
	for change := range 12 {
		var gone string
		before := w.upTo(f.client)
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
		changes, _, _ := w.replay(before, w.upTo(f.client))
		moves := 0
		for _, c := range changes {
			if c.from != gone {
				moves++
			}
		}
		require.Equal(t, needed(owned, 64), moves, "change %d: %v were owned, %v has gone, then %v", change, owned, gone, changes)
	}
	f.finish(w)
}

func TestRollingRestartMovesEachShardTwiceAtMost(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 32, 10*time.Second)
	w := observe(t, f.client)
	for i := range 4 {
		f.join(fmt.Sprint("m", i))
		f.rest()
	}
	before := w.upTo(f.client)
	for i := range 4 {
		f.leave(f.members[0])
		f.rest()
		f.join(fmt.Sprint("m", i))
		f.rest()
	}
	changes, _, _ := w.replay(before, w.upTo(f.client))
	moves := make([]int, 32)
	for _, c := range changes {
		moves[c.shard]++
	}
	for shard, n := range moves {
		require.LessOrEqual(t, n, 2, "shard %d", shard)
	}
	f.finish(w)
}
