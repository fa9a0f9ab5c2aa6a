// Package etcdlock provides distributed locks on etcd. They are strongly consistent, and granted first come, first
// served. The lock of a crashed process is free after its TTL, and a holder learns in time that its lease runs out.
//
//	sessions := session.Keep(client)
//	defer sessions.Close(ctx)
//
//	orders := etcdlock.NewMutex(sessions, "orders")
//	err := etcdlock.Do(ctx, orders, func(ctx context.Context, h *etcdlock.Hold) error {
//		_, err := h.Txn(ctx).Then(clientv3.OpPut("orders/last", "42")).Commit()
//		return err
//	})
//
// A lock object has no state: every value with the same name, in any process, is the same
// lock. A successful Lock returns a [Hold], which is one ownership. Every kind of lock is a
// ticket in one kind of queue, which package fairqueue describes. What is said of Lock here
// goes for every call that takes a lock.
//
// More is in the repository:
//
//   - [Choosing]: which kind of lock, when to use none, how long to hold it.
//   - [Coming from]: the calls of Redis, Redlock, Redisson, ZooKeeper, Consul, MySQL,
//     etcd's concurrency package and client-go, and what stands for them here.
//   - [Operating]: permissions, TTLs, client settings, metrics, freeing a lock, costs.
//   - [Reading]: the order in which to read the source, and the life of one ticket.
//
// # Guarantees
//
//  1. Two exclusive holds of one name never exist at the same revision of etcd. This includes
//     two goroutines of one process, whether they share a Mutex, a session, or neither.
//  2. Lock returns nil only if the lock was held at some revision during the call. A failed
//     Lock leaves nothing behind that blocks others: a key that may exist is removed in the
//     background. WithLocalHandover and WithRetention may notice up to 5 ms late that the
//     key or the lease was removed by hand.
//  3. Grants are first come, first served, in the order in which etcd took the requests in. A
//     release wakes one waiter. No waiter polls. WithLocalHandover relaxes the order within
//     bounds.
//  4. A holder learns that it has lost the lock before another client can get it. Done closes,
//     Context ends, and Err returns an error, at the latest at the session's deadline (see
//     package session). The exception is a key or lease that is removed on the server: the
//     next owner gets the lock at once, and the holder learns of it within milliseconds if
//     the hold is at least a second old. A younger hold learns of a revoked lease with the
//     next renewal, and of a deleted key when the second is over.
//  5. The locks of a crashed process are free after its session's TTL, 15 s by default.
//  6. No client can release a hold of another. Every release is conditional on the key and
//     its create revision.
//  7. The token of a hold never changes. It rises strictly from owner to owner; with
//     WithLocalHandover or WithRetention, from process to process.
//  8. Readers that are adjacent in the queue share the lock. A reader never overtakes a writer
//     that came first, and a writer never overtakes a reader, except by an upgrade. Permits of a semaphore are
//     granted in order, whatever their weights. There are never more permits than the size,
//     except after the size was reduced.
//  9. Several locks are taken at one revision or not at all. Such waits never form a cycle.
//  10. The terms of an election are exclusive holds. Run resigns only when its work has stopped.
//
// # Not guaranteed
//
// No lock service can stop a suspended process. A process may be suspended between a look at
// Err and the write that follows, for longer than the TTL. It cannot notice this before it
// writes. So a lock alone keeps two processes from working at the same time nearly always.
// What must never happen has to be refused where it takes effect. Use Hold.Txn or Hold.Guard
// for writes to etcd: they take effect only while the hold exists. Elsewhere, store the token
// with the data and refuse lower tokens, with a [Fence] or like this:
//
//	UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2
//
// Tokens order exclusive holds, and the owners of one slot. Readers that share a lock, and
// holders of permits, do not fence each other.
//
// The library trusts etcd. It trusts that clocks run at about the same rate, and never
// compares the time of day of two machines. A cluster that is restored from a snapshot goes
// back in revisions, and so in tokens, unless it is restored with --bump-revision. It also
// brings back old holders; see [Operating].
//
// # Names
//
// The name "orders" stands for the queue at etcdlock/orders/ in etcd. Names are escaped to
// one path segment, so "a" and "a/b" never meet. With authentication a user has to read and
// write etcdlock/, or the narrower prefixes that [Operating] lists.
//
// # Errors
//
// An error may wrap several of these. The first that [errors.Is] finds, from the top, decides what
// to do, and what an HTTP handler answers:
//
//	ErrOutcomeUnknown          of a Txn: it may have taken effect. Read, or commit again       500
//	ErrLost, ErrClosed         another client may have the lock. Stop, and begin anew          503
//	ErrBusy                    of TryLock and TryDo: the lock is held or waited for            409
//	context.DeadlineExceeded   no lock, or no answer, in time; see [BlockedError]              503
//	context.Canceled           the caller has given up                                         none
//	any other                  a mistake, or etcd refuses (permission, space); or fn's own     500
//
// A temporary failure (a member is down, the leader changes, too many requests) is retried
// for as long as the caller's context allows.
//
// # Cost
//
// Lock of a free lock is one round trip and one raft entry, and so is Unlock. TryLock of a held
// lock is one read. A waiter costs a watch and a few small reads. A hold costs nothing in its
// first second; after that a watch, and a small read about every 10 s. A session costs
// one request per TTL/3, however many locks it holds. The other calls are in a table in
// [Operating].
//
// [Choosing]: https://github.com/etcdlock/locks/blob/main/docs/choosing.md
// [Coming from]: https://github.com/etcdlock/locks/blob/main/docs/coming-from.md
// [Operating]: https://github.com/etcdlock/locks/blob/main/docs/operating.md
// [Reading]: https://github.com/etcdlock/locks/blob/main/docs/reading.md
package etcdlock
