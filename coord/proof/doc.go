// Package proof tests that the promises of package coord hold when things break. It consists of tests.
//
// Fleets of members share shards while members join, leave, crash, hang and lose their links. Every work makes guarded
// writes. These are compared:
//
//   - A work that begins checks at once that no other work believes to have its shard, and that its token is higher.
//   - A witness reads the history of all keys, over a link without faults. By that history, each guarded write was made by
//     the first in line for its shard at that revision.
//   - At rest every shard has an owner, shares differ by one at most, and nobody waits. After a single change no more
//     shards have moved than balance needs.
//   - When all members have left, no key and no goroutine is left.
//
// How long shards were without a work is reported by the cause.
//
//	go test ./coord/proof                            # half a minute, fixed seeds
//	go test ./coord/proof -chaos=30m -timeout=0 -v   # random seeds, printed
//	go test ./coord/proof -run Storms -seed=42 -v    # one of them again
package proof
