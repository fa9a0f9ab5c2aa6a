// Package coord coordinates processes, on top of locks. A [Group] knows which processes are there. [Shards] spread the
// parts of some work over them. A [Once] is done by one process for all. A [Latch] and a [Barrier] wait for a number of
// arrivals or parties. They are built of the tickets and holds of packages fairqueue and etcdlock.
//
//	sessions := session.Keep(client)
//	defer sessions.Close(ctx)
//
//	partitions := coord.NewShards(sessions, "orders", 64)
//	err := partitions.Run(ctx, hostname, func(ctx context.Context, h *etcdlock.Hold, shard int) error {
//		return consume(ctx, shard, h.Token()) // until ctx ends
//	})
//
// The values have no state. Every value of one type with the same name, in any process, is the same one.
//
// # Guarantees
//
// Of a Group:
//
//  1. An id has one member at a time. A member of the same id that comes later waits until the earlier one has left or
//     its lease has expired. If that does not happen within two TTLs without an election in etcd, the error wraps [ErrIDTaken].
//  2. A member learns that it has been lost before its key can be gone, as a holder of a lock does. [Group.Keep] joins
//     again after every loss.
//  3. [Group.Members] returns the members as of one revision, in the order in which they joined. [Group.Observe] yields
//     every later state, or skips to the latest.
//
// Of Shards:
//
//  4. A shard has one owner at a time. Each ownership is an exclusive [etcdlock.Hold] with a token, and is lost as one.
//  5. If members and etcd are undisturbed for long enough, every shard has an owner, and each member has as many as its
//     weight gives it: the exact share, rounded down or up.
//  6. Every member computes from one revision of etcd which shards are its own. There is no leader and no table.
//     No more shards move than balance needs.
//  7. A member releases a shard for another one only when that stands in line for it. The context of its work ends with
//     [ErrReassigned]. The shard is released when the work has returned.
//  8. If etcd and the members answer at once, a shard is without an owner for at most the settle time ([WithSettle]) and
//     a second. That counts from the return of its work, or, after a crash, from the end of the session's TTL. It has
//     been measured with up to 20 members and 512 shards. It begins anew if the member that is to have the shard leaves
//     or crashes as well. If that member cannot reach etcd, the time until it can, or until its lease expires, is added.
//  9. All members declare the same number of shards. One that joins an older member with another number gets a
//     [*CountError], and owns nothing.
//
// Of a Once:
//
//  10. Its function is called by one caller at a time, under a lock, and not while there is a mark. The mark and the writes
//     of the [Outcome] take effect in one transaction, and only while the lock is held.
//  11. A waiter returns when there is a mark, whatever its place in line.
//
// Of a Latch:
//
//  12. An id counts once. [Latch.Wait] returns nil only if at some revision since its call as many ids as declared had
//     been counted.
//
// Of a Barrier:
//
//  13. [Barrier.Await] returns nil only if at some revision since its call as many parties as declared stood at the
//     barrier, the caller among them, and no party of an earlier opening. They go on in the order in which they came.
//  14. If enough parties stand there and etcd answers them, they go on. A party that has given up does not stand there.
//     A party that has crashed, lost its session or cannot reach etcd stands there until its lease expires. If it comes
//     again before that, it counts twice.
//
// Of all:
//
//  15. When the last member has left, or the last party has gone on, and its session is closed, no key is left in etcd. The
//     mark of a Once stays until it expires or is reset. The arrivals of a Latch stay until it is reset. If the last party
//     of a Barrier crashes or loses etcd as it goes on, its openings stay until the next opening.
//
// # Not guaranteed
//
// The function of a Once is called at least once. Only the Writes of its [Outcome] take effect exactly once: its process
// may crash between its work and the mark.
//
// If a party of a Barrier gives up at the moment of the opening, it may have been counted, and the others go on.
//
// If etcd is restored from a backup, later writes are lost: the mark of a Once, arrivals at a Latch, openings of a
// Barrier, whose generations may go back. Sessions end when they notice. [Group.Keep] and [Shards.Run] join again.
// Observers yield the present state within 15 s. Until all members have noticed, a shard may have two owners. A call
// that is in progress may count members, arrivals or parties that are lost.
//
// Two members may have different views for a moment. Ownership of shards depends on locks, not on views.
//
// The limits of locks apply. A suspended process cannot notice its loss, so a write that must not happen twice needs the
// token of the Hold, see package etcdlock. The work of a shard is done at least once: the next owner has to finish what
// the owner before it has begun.
//
// A membership does not show that a process is healthy, only that its session is renewed.
//
// A rolling restart, one member after the other, moves a shard twice at most if the number of members divides the
// number of shards. Otherwise a few shards may move a third time: in a model of 2 to 20 members, 6 of 29,336. With
// weights there are more.
//
// # Keys
//
//	<namespace>/<name>!/members/<id>/l<lease>-<slot>           a member, with its value
//	<namespace>/<name>!/shards/members/<id>/l<lease>-<slot>    a member of Shards, with its weight
//	<namespace>/<name>!/shards/<number>/x<lease>-<slot>        the owner of a shard, or a member in line for it
//	<namespace>/<name>!/once/lock/x<lease>-<slot>              the caller of a Once that works, or is in line
//	<namespace>/<name>!/once/done                              its mark: a token, a space and the value
//	<namespace>/<name>!/latch/count                            the number of arrivals, a space and the first id
//	<namespace>/<name>!/latch/arrived/<id>                     an arrival
//	<namespace>/<name>!/barrier/line/s<lease>-<slot>           a party
//	<namespace>/<name>!/barrier/open/<parties>                 the last party of each of the last openings, as JSON
//
// Each folder of tickets is a queue of package fairqueue. Names and ids are escaped to one path segment. No name of a lock
// leads below another name's "!/", so a lock, a Group and a Shards may have the same name.
//
// # Errors
//
// The calls return an [*etcdlock.Error] with the operation and the name. errors.Is and errors.As find in it the errors
// that package etcdlock describes, and those of this package.
//
// # Cost
//
// Joining is one round trip and one raft entry, however many members there are. A member costs a watch and a small read
// about every 10 s. Observe costs one read of all members, a watch on them, and about every 10 s a read without values.
// Each change is one event to each observer. A member of Shards costs a membership, an Observe of members and shards, and
// for each shard that it owns a lock, which takes a read and a new watch about every 10 s: together about 100 requests a
// second for 512 shards, and another read each while other keys are written. So Shards are for some hundreds of shards.
//
// A member that joins gets its shards one after the other, a round trip to etcd each. The last of 128 has no owner for
// about 0.7 s if a round trip takes 5 ms.
package coord
