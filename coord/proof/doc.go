// Package proof tests that the promises of package coord hold when things break. It consists of tests.
//
// The cluster has one member or three. In a storm, random faults from a seed hit the processes, their links, single
// requests, replies, renewals and watches, and the members of etcd. Members are killed, stopped and isolated, leaders
// change, and the space for data ends. Where there are passwords, permissions are taken away, in part or whole, and
// given back. A witness reads the history of all keys in the stores of the members, where no fault hides anything.
//
// Fleets of members share shards while members join, leave, crash and hang. Every work makes guarded writes. These are compared:
//
//   - A work that begins checks at once that no other work believes to have its shard, and that its token is higher.
//   - By the history, each guarded write was made by the first in line for its shard at that revision.
//   - At rest every shard has an owner, shares are exact up to rounding, and no member waits. After a single change no more
//     shards have moved than balance needs.
//   - When all members have left, no key and no goroutine is left.
//
// Processes that crash and are replaced call Once, Latch and Barrier. By the history:
//
//   - The function of a Once has run only under its lock and without a mark. Each mark was made with its writes, once. Every
//     value that was returned is that of a mark of the time of the call.
//   - An arrival at a Latch was written once, and no call of Wait returned before the last.
//   - At each opening of a Barrier as many parties as needed stood there. Each of them has gone on with it, or has failed.
//   - After the storm calls succeed again, and all return.
//
// Members and observers of a Group: a process that believes to be a member is, by the history, the only one of its
// id. Every state that is read or observed was so at one revision. In the end all that call Keep are members, and
// every observer has seen that.
//
// A cluster goes back, with users of everything: to a snapshot, or to nothing. All sessions have to notice it, all
// members have to join again, and every call has to return. From then on every promise has to hold, by the history of
// the data that are there.
//
// A seed decides the faults, not the history. The time for which shards were without an owner is reported by the
// cause.
//
//	go test ./coord/proof                            # under a minute, fixed seeds
//	go test ./coord/proof -chaos=30m -timeout=0 -v   # random seeds, printed
//	go test ./coord/proof -run Shards -seed=42 -v    # one of them again
package proof
