// Package etcdlock continues with advice: what to choose and when.
//
// # Choosing
//
// A distributed lock is for work that takes several steps, or that happens where nothing can be compared
// before it is written: a device, a mail, somebody else's API, a computation that must not be paid for
// twice. It is the wrong tool where the thing itself can say no.
//
//	what must not happen                       better than a lock
//	the same request takes effect twice        an idempotency key: a unique column, or a key in etcd
//	                                           that is created if its create revision is 0
//	two writers overwrite each other, one row  UPDATE ... WHERE version = $1, or a transaction
//	the same with one key in etcd, or a few    a transaction that compares ModRevision; try again if not
//	two rows that contradict each other        a constraint: unique, exclusion, foreign key
//	two workers take the same job of a table   SELECT ... FOR UPDATE SKIP LOCKED, or an owner and an end
//	                                           in the row, set by a conditional UPDATE
//	two workers handle messages of one key     a queue with partitions, each with one consumer
//
// These hold even if the process was stopped at the worst moment, because the check and the effect are
// one step. A lock is two steps. Optimistic transactions do badly where many want the same thing, since
// most of the work is thrown away; then a lock in front of the transaction keeps the order and saves the
// work, and the transaction goes on being what makes it correct.
//
// So ask first what happens if two holders overlap for a second, once a year. If that costs some work
// done twice, a lock alone will do. If it costs money or data, the lock needs a guard as well.
//
// # With a lock: fencing
//
//	where the effect is            what refuses a holder that has been replaced
//	etcd                           Hold.Txn; Hold.Guard (of several keys: Guards) in a transaction of one's own
//	a database                     a column with the token: WHERE fence <= $token, SET fence = $token
//	a service of one's own         a Fence next to the data, the token in a header
//	somebody else's service        an idempotency key, if it takes one, or a conditional request (If-Match)
//	none of these                  nothing does. Hold.Ensure before the step makes an overlap less likely:
//	                               at least that much trust is left when it begins
//
// Let the context that [Do] gives, or that of the [Hold], go to everything done under the lock: it ends
// with the loss. [RequireHeld] in inner functions finds callers that have forgotten the lock.
//
// # Mutex or Election
//
// Take a [Mutex] for work that ends, and an [Election] for work that goes on as long as the process does.
// Election.Run is what one would otherwise write around a Mutex: it campaigns again after a loss, gives
// the lead up only when the work has stopped, and others can find out who leads. It costs nothing more
// while it lasts.
//
// A job of a schedule is neither: each process calls TryLock when its timer goes off, with [WithMinHold]
// longer than their clocks differ. Whoever comes first runs it; the others get [ErrBusy] for one read. If
// the run must not be missed because the process died in it, write down in etcd or the database what has
// been done.
//
// # How long to hold
//
// There is no limit: a hold lasts as long as its session, which is renewed in the background. A hold of
// less than a second costs nothing on top of Lock and Unlock; a longer one a watch, and a small read
// about every 10 s.
//
// That cuts both ways. A holder that hangs, in a process that lives, keeps the lock: a session says that
// the process is alive, not that it makes progress. Give the work a time-out (Do passes ctx on), or a
// leader [WithHealthCheck]. Do not end the wait and let the work go on: Do waits for its function in any
// case.
//
// Hold it for the steps that need it. What can be prepared before or told afterwards belongs outside. If
// the work is longer than a waiter is ready to wait, give waiters a deadline; the error says who was in
// the way ([BlockedError]).
//
// # One lock or many
//
// A name costs nothing while nobody uses it (a [Semaphore] leaves one key, until Forget), so name the
// thing that must not be touched twice: "order/4711" rather than "orders". Holders of different names do
// not wait for each other, and their transactions share requests if they come from one session at the
// same time. One name is served as fast as etcd can commit a release and tell the next in line: some
// hundreds of grants a second.
//
//   - Several names at once: [Multi], not one after the other. In whatever order they are named, two of
//     them cannot wait for each other. Locks that are taken one by one can, and nothing breaks that up.
//   - Without end many names, each used once: their deleted keys stay in etcd until a compaction.
//     [Striped] maps them to a fixed number; keys that share a stripe then wait for each other.
//   - Something that can be split, such as a stock or a quota: Striped.Any.
//   - A number of equal things: [Semaphore]; WithSlots if a holder has to know which of them is its own.
//   - Mostly readers: [RWMutex], if they read for longer than the round trip that a read lock costs.
//
// A wide lock around small ones (a table and its rows) is a RWMutex for the table: the users of rows hold
// it as readers, together with their row, in one Multi.
//
// # Fair or fast
//
// By default every Lock has its own place in etcd's queue, and grants follow its order strictly. Two
// options of a [Mutex] trade some of that for round trips, where one process locks the same name often:
//
//	                  WithLocalHandover                     WithRetention
//	for               many goroutines of a process that     one that locks again and again, alone
//	                  wait
//	saves             the writes of the hand-over           the writes of both, while nobody else wants it
//	order             within a process as they came; of     unchanged
//	                  processes, as their turns came
//	others wait       at most the bound more, and the last  one hand-over more; until the TTL is over
//	                  holder's time, for each such process  if the process does not answer
//	                  ahead of them
//	token             the same for a turn of the process    the same until the lock is given back
//
// They can be combined. With either, the token tells processes apart, not goroutines: those have to be
// ordered by what they share in memory. Neither goes together with WithMinHold, nor with other kinds of
// locks. All goroutines have to use the same Mutex value, since the state is in it. Measure first: where
// names differ, neither helps.
//
// Where it makes no sense to wait, use TryLock, and do something else on [ErrBusy].
package etcdlock
