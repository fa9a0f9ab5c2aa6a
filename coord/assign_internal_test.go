package coord

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// membersOf makes members of weight 1, or of the weight behind a colon.
func membersOf(t testing.TB, text string) (members []candidate) {
	for _, field := range strings.Fields(text) {
		m := candidate{weight: 1}
		id, weight, ok := strings.Cut(field, ":")
		if m.id = id; ok {
			_, err := fmt.Sscan(weight, &m.weight)
			require.NoError(t, err)
		}
		members = append(members, m)
	}
	return members
}

// ownersOf makes the owners of shards, of which a later one got its shard later. A dash is none.
func ownersOf(text string) (owners []owner) {
	for i, id := range strings.Fields(text) {
		o := owner{id, int64(i) + 1}
		if id == "-" {
			o = owner{}
		}
		owners = append(owners, o)
	}
	return owners
}

func TestAssignment(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, members, owners, kept string }{
		// A dash in kept is a shard that may go to anybody.
		{"nobody is there", "", "- a b", "! ! !"},
		{"one member gets everything", "a", "- - -", "a a a"},
		{"shards of a member that has left are free", "a", "b a b", "a a a"},
		{"balanced owners keep what they have", "a b", "a b a b", "a b a b"},
		{"a new member gets the shards that were acquired last", "a b", "a a a a", "a a b b"},
		{"an owner of more than its share keeps one more", "a b", "a a a", "a a b"},
		{"the youngest of those with a shard more keeps it", "a b c", "a a b b - -", "a a b b c c"},
		{"of two with a shard more the youngest keeps it", "a b c", "a a b b", "a c b b"},
		{"shares go by weight", "a:3 b:1", "b b b b", "b a a a"},
		{"there are fewer shards than members", "a b c", "b", "b"},
		{"a free shard goes to the only member with room", "a b", "a a - b", "a a b b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			members, want := membersOf(t, c.members), strings.Fields(c.kept)
			for shard, i := range assign(members, ownersOf(c.owners)) {
				id := "!"
				if i != nobody {
					id = members[i].id
				}
				require.Equal(t, want[shard], id, "shard %d", shard)
			}
		})
	}
}

// requireRight checks an assignment by rules that are written a second time.
func requireRight(t testing.TB, members []candidate, owners []owner, target []int) {
	t.Helper()
	require.Len(t, target, len(owners))
	if len(members) == 0 {
		require.NotContains(t, target, 0)
		return
	}
	total := 0
	for _, m := range members {
		total += m.weight
	}
	shares, moves := make([]int, len(members)), 0
	for shard, i := range target {
		shares[i]++
		id := owners[shard].id
		if id != members[i].id && slices.ContainsFunc(members, func(m candidate) bool { return m.id == id }) {
			moves++
		}
	}
	for i, m := range members {
		exact := len(owners) * m.weight
		require.GreaterOrEqual(t, shares[i], exact/total, "member %d", i)
		require.LessOrEqual(t, shares[i], (exact+total-1)/total, "member %d", i)
	}
	require.Equal(t, fewestMoves(members, owners, total), moves, "moves")
}

// fewestMoves tries all ways to round shares.
func fewestMoves(members []candidate, owners []owner, total int) int {
	fewest := len(owners) + 1
	var round func(i, left, moves int)
	round = func(i, left, moves int) {
		if i == len(members) {
			if left == 0 {
				fewest = min(fewest, moves)
			}
			return
		}
		owned := 0
		for _, o := range owners {
			if o.id == members[i].id {
				owned++
			}
		}
		exact := len(owners) * members[i].weight
		for share := exact / total; share <= (exact+total-1)/total; share++ {
			round(i+1, left-share, moves+max(owned-share, 0))
		}
	}
	round(0, len(owners), 0)
	return fewest
}

// scenario makes members and owners of some bytes.
func scenario(weights, held []byte) (members []candidate, owners []owner) {
	for i, w := range weights[:min(len(weights), 8)] {
		members = append(members, candidate{fmt.Sprint("m", i), int(w)%4 + 1})
	}
	for _, b := range held[:min(len(held), 64)] {
		o := owner{}
		if b%16 < 10 { // m8 and m9 are no members
			o = owner{fmt.Sprint("m", b%16), int64(b) / 32} // many were taken in one request
		}
		owners = append(owners, o)
	}
	return members, owners
}

// The steps of a reassignment come in any order, and what is assigned does not change with them.
func requireStepsKeep(t testing.TB, members []candidate, owners []owner, order *rand.Rand) {
	t.Helper()
	target := assign(members, owners)
	token := int64(1 << 32)
	for _, shard := range order.Perm(len(owners)) {
		if i := target[shard]; i != nobody && members[i].id != owners[shard].id {
			token++
			owners[shard] = owner{members[i].id, token}
			require.Equal(t, target, assign(members, owners), "after shard %d", shard)
		}
	}
}

func FuzzAssignment(f *testing.F) {
	f.Add([]byte{0, 0, 0}, []byte{0, 0, 0, 0, 0, 0, 15}, uint64(1))
	f.Add([]byte{3, 0, 1, 1}, []byte{9, 9, 0, 1, 2, 15, 1, 1, 1, 1}, uint64(2))
	f.Fuzz(func(t *testing.T, weights, held []byte, seed uint64) {
		members, owners := scenario(weights, held)
		requireRight(t, members, owners, assign(members, owners))
		requireStepsKeep(t, members, owners, rand.New(rand.NewPCG(seed, 0)))
	})
}

func TestAssignmentIsBalancedAndMovesNoMoreThanNeeded(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		weights, held := make([]byte, random.IntN(9)), make([]byte, random.IntN(65))
		for _, list := range [][]byte{weights, held} {
			for i := range list {
				list[i] = byte(random.Uint32())
			}
		}
		members, owners := scenario(weights, held)
		requireRight(t, members, owners, assign(members, owners))
		requireStepsKeep(t, members, owners, random)
	}
}

// Shards that were taken in one request have one token, so what is given up is not decided by tokens alone.
func TestStepsWithFewTokens(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 3))
	for range 20 {
		owners := make([]owner, 64)
		for shard := range owners {
			owners[shard] = owner{"a", random.Int64N(3)}
		}
		requireStepsKeep(t, membersOf(t, "a b c"), owners, random)
	}
}

// The hash is part of what members of different versions have to agree on.
func TestScoreStays(t *testing.T) {
	t.Parallel()
	require.Equal(t, []uint64{0x5f29c2aadd9b8527, 0x34e2372446a0108c}, []uint64{score(hashOf("a"), 0), score(hashOf("host-7"), 511)})
}
