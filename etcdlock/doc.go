// Package etcdlock provides distributed locks on etcd that are strongly consistent,
// fair, live and honest.
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
// # Which to choose
//
//	only one at a time                              Mutex
//	many may read, one may write                    RWMutex; Hold.Downgrade to read on what was written
//	at most n at a time, over all processes         Semaphore; WithSlots if each needs a number
//	several things at once                          Multi: all or nothing, in any order of names
//	one of many keys, without a queue for each      Striped.For
//	any of several equal things, or any n           Striped.Any, Striped.AnyN
//	code that locks calls code that locks           Reentrant; better, RequireHeld in the inner one
//	a job of a schedule, once per tick              Mutex.TryLock with WithMinHold
//	one of several processes does the work, always  Election.Run; others find it with Leader, Observe
//	code that wants a sync.Locker                   NewLocker
//	many goroutines of a process want one lock      Mutex WithLocalHandover
//	a process locks the same name again and again   Mutex WithRetention
//
// No lock at all is better where a transaction or a conditional write on the thing itself will
// do, and where doing it twice does no harm. An Election is a Mutex held for ever whose owner
// can be found; take a Mutex for work that ends. More under Choosing, and for those who know
// other locks under Coming from; Operating is for those who run them.
//
// All of them are places in one kind of queue (package fairqueue), and what a successful
// call returns is always a [Hold]. What is said of Lock here goes for every way to take a lock.
//
// # Guarantees
//
//  1. Two exclusive holds of one name never exist at the same revision of etcd.
//     That goes for two goroutines of one process as well, whether they share a
//     Mutex, a session or neither.
//  2. Lock returns nil only if at some revision during the call the lock was held.
//     If it returns an error, nothing is left behind that blocks others: what may
//     exist is removed in the background. WithLocalHandover and WithRetention have a
//     limit of 5 ms where a key or lease is removed by hand.
//  3. First come, first served: grants happen in the order in which etcd took the
//     requests in. A release wakes one waiter, and no waiter polls. WithLocalHandover
//     relaxes the order within bounds.
//  4. A holder learns that it has lost the lock before anybody else can get it:
//     Done closes, Context ends, and Err says so at the first look, at the latest at
//     the session's deadline (see package session). If somebody removes the lease or
//     the key on the server, the next owner gets in at once; the holder hears of it
//     within milliseconds once the hold is a second old, and before that of a lease
//     with the next renewal, of a key when the second is over.
//  5. A crashed holder is gone after its session's TTL, about 15 s by default.
//  6. Nobody can release what somebody else holds. A hold is a value of its own, and
//     every release is conditional on the very key and its create revision.
//  7. The token of a hold never changes, and rises strictly from owner to owner; with
//     WithLocalHandover or WithRetention, from process to process.
//  8. Readers that stand next to each other share; a reader never overtakes a writer that
//     came first, nor the other way round. Permits of a semaphore are granted in order,
//     whatever the weights, and at no revision are there more of them than its size, unless
//     it has been reduced since.
//  9. Several locks are taken at one revision or not at all, and such waits never form a cycle.
//  10. An election's terms are exclusive holds: Run gives one up only when its work has stopped.
//
// # Not guaranteed
//
// No lock service can stop a process that does not look: it may be suspended between
// a look at Err and the write that follows, for longer than the TTL. So a lock alone
// keeps two processes from working at the same time nearly always; what must never
// happen has to be refused where it takes effect. For writes to etcd use Hold.Txn or
// Hold.Guard, which take effect only while the hold exists. Elsewhere store the token
// with the data and refuse lower ones, with a [Fence] or like this:
//
//	UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2
//
// The tokens of those who hold together (readers, holders of permits) do not fence each
// other: only exclusive holds, and the owners of one slot one after the other, can be told
// apart by them.
//
// The lock trusts etcd, and that clocks run at about the same rate; it never compares
// the time of day of two machines. A cluster that is restored from a snapshot goes
// back in revisions, and so do tokens, unless it is restored with --bump-revision; and it
// goes back in who holds what (see Operating below).
//
// # Names
//
// The name "orders" stands for the queue at etcdlock/orders/ in etcd; see package
// fairqueue for what is in it. Names are escaped to a single path segment, so "a" and
// "a/b" never meet.
//
// # Permissions
//
// Where etcd knows users, one who uses locks needs to read and to write, for the name
// "orders", the keys with these prefixes, or simply with etcdlock/ (or another namespace):
//
//	Mutex, RWMutex, Reentrant, Election   etcdlock/orders/
//	Semaphore                             etcdlock/orders/ where its size is, too
//	  with slots                          etcdlock/orders!/slot/ besides
//	Multi                                 that of each of its locks
//	Striped                               etcdlock/orders%2F
//	AtPrefix                              orders/
//	Inspect, Leader, Candidates,          that of the lock, for reading only
//	Observe, Sizes
//	ForceRelease                          that of the lock
//	Hold.Txn                              what is in it besides
//	sessions                              none
//	AtPrefix, to end doubts               !/epoch/ beside the prefix
//
// Neither reading nor writing alone is enough to lock. What etcd refuses is returned at once.
// A token that expires is no trouble to those who wait or hold, as long as the client can get
// another, that is, has a password. With one, etcd's client authenticates when it is made,
// when its token has expired, and for each stream of watches that it opens: one request and
// one raft entry, and the server computes a hash. A renewal costs none of that.
//
// # Errors
//
// An error may wrap several of these. The first of them that [errors.Is] finds, from the top, decides what to
// do, and what the handler of an HTTP request answers:
//
//	ErrUnclear                 of a Txn: it may have taken effect. Look, or do it again        500
//	ErrLost, ErrClosed         somebody else may have the lock. Stop, and begin anew           503
//	ErrBusy                    of TryLock and TryDo: somebody has the lock or waits for it     409
//	context.DeadlineExceeded   no lock, or no answer, in time; see [BlockedError]              503
//	context.Canceled           the caller has given up                                         none
//	any other                  a mistake, or etcd refuses (permission, space); or fn's own     500
//
// # Cost
//
// Lock takes one round trip and one raft entry if the lock is free. If it is not, there
// is a watch on the predecessor, unless there is one from a turn before, one or two small
// reads, and after its release one more; behind hundreds of others a transaction instead of
// that, and a read of the whole queue, which waiters of one session share.
// TryLock of a held lock is one read, no raft entry. Unlock is one round trip. A hold
// costs nothing in its first second; after that one watch, and a small read about every
// 10 s. Sessions cost one request per TTL/3, however many locks they hold.
//
//	Multi of n names                as one lock: one round trip, one raft entry
//	Semaphore, after a wait         one transaction more; with slots a read and a transaction
//	Striped.Any, one free           one read, one transaction
//	Downgrade, Proclaim             one transaction
//	Campaign, after a wait          one read more, for priorities
//	Transfer                        two reads, one transaction
//	Resize                          one read, one transaction
//	Unlock before WithMinHold       two round trips
//	entering again                  nothing; one read if another client has the hold
//	a local hand-over, a kept lock  one read, at most one in 5 ms if there is no pause of 50 µs; a watch
//	                                for a lock that is kept
//
// Locks and releases of many names at the same time, on one session, share requests.
package etcdlock
