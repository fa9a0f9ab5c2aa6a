// Package etcdlock continues with what stands for what in other libraries.
//
// # Coming from
//
// What stands for what, and what changes. In the tables, m is a [Mutex], h a [Hold], and sessions a
// session.Keeper. Four things differ from most of the others. A lock belongs to a session, which is
// renewed for all of them together, so a single lock has no time to live. Loss is not guessed: Done,
// Context and Err say it before anybody else can get in (unless it is removed by hand), and Unlock
// returns it as [ErrLost]. Waiting is in order and wakes up by an event. And each acquisition is a value,
// with a token of its own: no thread and no lock object owns it.
//
// # Coming from Redis: SET NX and scripts
//
//	SET name id NX PX 30000, once                m.TryLock(ctx); ErrBusy
//	the same in a loop with pauses               m.Lock(ctx), whose ctx bounds the wait
//	script: if GET == id then DEL                h.Unlock(ctx)
//	script: if GET == id then PEXPIRE            nothing to do; h.Ensure(ctx, d) to be sure of the next d
//	the random id                                nothing to make up: key and create revision
//	INCR for a fencing token                     h.Token()
//	the same without DEL: once per 30 s          WithMinHold(30*time.Second), TryLock, Unlock;
//	                                             after a crash, the TTL counts
//
// Gained: a grant has been written by a majority. By default a Redis primary answers before its replicas
// have the key, so a failover can forget a lock. Waiters do not poll, and are served in order. Lost:
// speed, since each lock and release is written to the disks of a majority; and the release by time
// alone. SET PX frees a lock after its time whether or not the holder lives. Here a holder that hangs in
// a living process keeps it: bound the work with a context.
//
// # Coming from Redlock
//
// The calls are those of the Go client redsync.
//
//	redsync.New(pools...)                        session.Keep(client): one cluster instead of several servers
//	rs.NewMutex(name, redsync.WithExpiry(d))     NewMutex(sessions, name); the time is session.WithTTL's
//	mutex.LockContext(ctx), 32 tries by default  m.Lock(ctx): until ctx ends
//	mutex.TryLockContext(ctx)                    m.TryLock(ctx)
//	mutex.ExtendContext(ctx)                     nothing to do
//	mutex.Until()                                h.Deadline(), which renewals move; h.Err() decides
//	mutex.UnlockContext(ctx)                     h.Unlock(ctx)
//
// Both take a majority and subtract a margin for clocks that drift. Here the majority agrees on one order
// (raft), so there is a token that rises, a queue, and no split vote to try again after. A member that
// restarts has not forgotten who holds what. Lost: independence from one cluster, and Redis's speed.
//
// # Coming from Redisson
//
//	getLock(n).lock()                            m.Lock(ctx), or Do
//	lock.tryLock()                               m.TryLock(ctx)
//	lock.tryLock(wait, lease, unit)              Lock with a deadline in ctx; the lease has no counterpart
//	lockWatchdogTimeout, 30 s by default         session.WithTTL, 15 s by default
//	lock.forceUnlock()                           ForceRelease, for one given holder
//	getFairLock(n)                               every lock is
//	getFencedLock(n).lockAndGetToken()           m.Lock; h.Token(), the same for as long as h lasts
//	getReadWriteLock(n)                          NewRWMutex
//	getMultiLock(a, b, c)                        NewMulti; names of one etcd cluster only
//	getSemaphore, getPermitExpirableSemaphore    NewSemaphore; WithSlots for a permit with a number
//	getSpinLock(n)                               no counterpart: nothing polls
//
// Redisson's locks are re-entrant by thread. Here nothing is, unless taken through [Reentrant], where the
// context says who holds it. Any goroutine may unlock a Hold. Redisson's watchdog renews each lock; a
// session renews one lease for all of them, and losing it loses all of them. Redisson's waiters are woken
// by a message, too, but compete for the lock afterwards, unless it is a fair one. Its permits come back
// after a lease time or not at all, those of a plain RSemaphore; here, when their holder's session is
// over.
//
// # Coming from ZooKeeper and Curator
//
//	new InterProcessMutex(client, path)          NewMutex(sessions, name); Reentrant, if it was re-entered
//	new InterProcessSemaphoreMutex(client, path) NewMutex(sessions, name)
//	mutex.acquire(), acquire(time, unit)         m.Lock(ctx)
//	InterProcessReadWriteLock                    NewRWMutex; write to read: Hold.Downgrade
//	InterProcessSemaphoreV2                      NewSemaphore; its size is agreed on in etcd
//	InterProcessMultiLock                        NewMulti: one transaction instead of one after the other
//	LeaderLatch, LeaderSelector                  NewElection: Campaign, Run
//	ConnectionState SUSPENDED                    session.AtRisk (WithOnChange)
//	ConnectionState LOST                         session.Lost, and the end of every Hold
//	makeRevocable                                no counterpart
//	go-zookeeper: zk.NewLock(conn, path, acl)    NewMutex; ErrDeadlock does not exist, the second Lock waits
//
// The queue is the same idea: sequential ephemeral nodes there, create revisions and a lease here; each
// waiter watches the one ahead of it. What differs is who tells the holder. SUSPENDED says that the
// connection is gone, and the listener decides what to do; here AtRisk is for telling people, and the
// hold ends by itself, by the clock, ahead of the server. Names are flat: "a/b" is not below "a". Lost:
// the larger choice of recipes (barriers, queues, counters).
//
// # Coming from Consul
//
//	client.LockKey(key)                          NewMutex(sessions, name)
//	lock.Lock(stopCh), returns lostCh            m.Lock(ctx); h.Done()
//	LockOptions.LockTryOnce                      m.TryLock(ctx): does not wait at all
//	LockOptions.Value                            WithLabel; an Election's value
//	lock.Unlock(), lock.Destroy()                h.Unlock(ctx); nothing is left to destroy
//	SessionTTL, 10 s at least                    session.WithTTL, 2 s at least with etcd's defaults
//	client.SemaphorePrefix(prefix, limit)        NewSemaphore(sessions, name, limit)
//	kv.Acquire, kv.Release with a session        a Mutex, or package fairqueue to build one's own
//	LockIndex as a sequencer                     h.Token()
//	LockDelay, 15 s by default                   no counterpart; WithMinHold delays a release, not a loss
//	health checks bound to a session             WithHealthCheck of an Election, run by the candidate itself
//
// The lock-delay gives a holder that has lost its session time to notice. Here the holder's deadline lies
// ahead of the lease's end by the margin (session.WithMargin), so the time is on the holder's side and
// others need not wait. It is also less: if the work takes seconds to stop, raise the margin, and guard
// what it writes. A release in Consul wakes all who wait on the key; here it wakes one. Lost: that a node
// which fails its checks loses its locks.
//
// # Coming from MySQL
//
//	SELECT GET_LOCK('n', 10)                     m.Lock with a deadline in ctx; for 0, ctx's error
//	SELECT GET_LOCK('n', 0)                      m.TryLock(ctx)
//	GET_LOCK of the same name again, one session Reentrant
//	SELECT RELEASE_LOCK('n')                     h.Unlock(ctx)
//	SELECT IS_USED_LOCK('n')                     Inspect
//	SELECT ... FOR UPDATE                        stay with it, if what it protects is in that database
//	SELECT ... FOR UPDATE NOWAIT, SKIP LOCKED    m.TryLock; Striped.Any
//	SELECT ... FOR SHARE                         RWMutex.RLock
//
// A row lock is the better one for rows: its end and the commit are one event, so it needs no token. Come
// here for work outside of that database, for work that is longer than a transaction should be, or for
// order: InnoDB does not promise to serve waiters first come, first served. GET_LOCK lives in one server
// and ends with the connection, so a fail-over forgets it, and a connection pool has to keep the
// connection for it. Here a broken connection does no harm within the TTL. Names are case-sensitive here,
// and up to 512 bytes. MySQL finds deadlocks, of both kinds, and breaks them up; here nothing does, so
// two names belong into a [Multi]. If a lock guards writes to MySQL, put the token into the row.
//
// # Coming from etcd's concurrency package
//
//	concurrency.NewSession(client), TTL 60 s     session.Keep(client), TTL 15 s; session.WithTTL
//	session.Done()                               Hold.Done, or Done of a session.New
//	session.Orphan()                             no counterpart
//	concurrency.NewMutex(s, "/my/lock")          NewMutex(sessions, "/my/lock", AtPrefix()): the same queue
//	m.Lock(ctx), m.TryLock(ctx), ErrLocked       the same, with a Hold; ErrBusy
//	m.Unlock(ctx)                                h.Unlock(ctx)
//	m.IsOwner(), m.Key()                         h.Guard() or h.Txn(ctx), h.Key()
//	m.Header().Revision as a token               h.Token()
//	concurrency.NewLocker, which panics          NewLocker, which tells
//	NewElection, Campaign, Proclaim, Resign      the same, with a Term; Run does all of it
//	ResumeElection                               no counterpart
//	election.Observe(ctx), a channel             Observe: a sequence; vacancies are seen, errors are told
//	NewSTM                                       stay with it
//	recipes.NewRWMutex                           NewRWMutex; not the same queue, so move all at once
//	recipes: barriers, queues                    no counterpart
//	etcdctl lock, elect; the lock and election   AtPrefix shares their queues
//	services of the server
//
// With AtPrefix a fleet moves over one process at a time. What changes: two Locks on one session exclude
// each other, where concurrency.Mutex lets both in; an error leaves no key behind; the loss comes ahead
// of the next owner; a lost session is replaced. Lost: Orphan, a lease of one's own (WithLease), and that
// the package comes with the client.
//
// # Coming from client-go's leader election
//
//	leaderelection.RunOrDie(ctx, config)         election.Run(ctx, identity, lead)
//	OnStartedLeading(ctx)                        lead(ctx, term)
//	OnStoppedLeading()                           what comes after lead has returned
//	OnNewLeader(identity)                        Observe
//	LeaseLock's Identity                         the value given to Run
//	LeaseDuration 15 s, RetryPeriod 2 s          session.WithTTL; renewals go out every TTL/3
//	RenewDeadline 10 s                           TTL less margin: when a leader gives up by itself
//	ReleaseOnCancel                              always, once lead has returned
//	GetLeader, IsLeader                          Leader(ctx); term.Err()
//
// RunOrDie returns when the lead is lost, and programs usually exit then; Run waits for lead, resigns and
// campaigns again. OnStartedLeading runs in a goroutine of its own that nobody waits for, so with
// ReleaseOnCancel the work has to have stopped before ctx is cancelled; Run sees to that itself.
// Candidates there look about every RetryPeriod; here the one that has waited longest hears of the
// vacancy at once. client-go says of itself that it does not fence; a [Term] has a token and guards.
// Lost: that nothing but the Kubernetes API is needed.
package etcdlock
