package coord

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// candidate is a member that can own shards. A list of candidates is in the order in which they joined.
type candidate struct {
	id     string
	weight int
}

// owner is the first in line for a shard. The zero value is none.
type owner struct {
	id    string
	token int64
}

// nobody stands for the owner of a shard if there are no members.
const nobody = -1

// assign returns for each shard the index of the member that should own it. It is a function of what is in etcd at one
// revision, so all members come to the same result.
//
// Each member gets its exact share of the shards, rounded down or up. An owner keeps what it has, up to that. Of more
// it gives up the shards that it got last: those of a member that has left go back when that one comes again. A shard
// that is given up or has no owner goes to the member that its hash prefers among those with room.
//
// A shard that changes hands as assigned changes nothing for the others: its old owner had it too much, and its new owner
// had room for it. So the steps of a reassignment may come in any order.
func assign(members []candidate, owners []owner) []int {
	target := make([]int, len(owners))
	owned := make([][]int, len(members)) // shards
	index := make(map[string]int, len(members))
	for i, m := range members {
		index[m.id] = i
	}
	for shard, o := range owners {
		target[shard] = nobody
		if i, ok := index[o.id]; ok {
			owned[i] = append(owned[i], shard)
		}
	}
	if len(members) == 0 {
		return target
	}
	room := quotas(members, owned, len(owners))
	for i, list := range owned {
		// Shards that were taken in one request have one token.
		slices.SortFunc(list, func(a, b int) int { return cmp.Or(cmp.Compare(owners[a].token, owners[b].token), a-b) })
		kept := min(len(list), room[i])
		room[i] -= kept
		for _, shard := range list[:kept] {
			target[shard] = i
		}
	}
	hashes := make([]uint64, len(members))
	for i, m := range members {
		hashes[i] = hashOf(m.id)
	}
	for shard := range owners {
		if target[shard] == nobody {
			target[shard] = preferred(hashes, room, shard)
			if i := target[shard]; i != nobody {
				room[i]--
			}
		}
	}
	return target
}

// quotas returns how many of n shards each member gets. What rounding down leaves over goes to members that keep a shard
// more by that, and among them to those that joined last: in a rolling restart these are not restarted again.
func quotas(members []candidate, owned [][]int, n int) []int {
	total := 0
	for _, m := range members {
		total += m.weight
	}
	quota := make([]int, len(members))
	rest := n
	var inexact []int // those whose share is rounded
	for i, m := range slices.Backward(members) {
		quota[i] = n * m.weight / total
		rest -= quota[i]
		if n*m.weight%total > 0 {
			inexact = append(inexact, i)
		}
	}
	keepsMore := func(i int) int { return min(max(len(owned[i])-quota[i], 0), 1) }
	slices.SortStableFunc(inexact, func(a, b int) int { return cmp.Compare(keepsMore(b), keepsMore(a)) })
	for _, i := range inexact[:rest] {
		quota[i]++
	}
	return quota
}

// preferred returns which of the members with room a shard goes to (rendezvous hashing), or nobody.
func preferred(hashes []uint64, room []int, shard int) int {
	best, highest := nobody, uint64(0)
	for i, hash := range hashes {
		if room[i] == 0 {
			continue
		}
		if score := score(hash, shard); best == nobody || score > highest {
			best, highest = i, score
		}
	}
	return best
}

func hashOf(id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never fails
	return h.Sum64()
}

// score is the same on every machine and in every version. It mixes as SplitMix64 does.
func score(hash uint64, shard int) uint64 {
	x := hash + uint64(shard+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
