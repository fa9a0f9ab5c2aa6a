// Package etcdlock continues with what its operators need to know.
//
// # Operating
//
// What follows is for those who run services that use the locks, or the etcd below them. Permissions are
// in a section of their own, above.
//
// # TTL
//
// session.WithTTL is how fast a crash is made good against how much trouble a holder survives. A crashed
// process keeps its locks for two thirds of the TTL to all of it, and up to half a second more, since
// leases are renewed every TTL/3 and etcd looks for expired ones every 500 ms. A change of etcd's leader
// gives every lease its whole TTL again, and an election time-out on top.
//
// A holder, on the other hand, gives up when no renewal has been answered for TTL less margin (TTL/10, at
// least 200 ms). If etcd stops answering just before a renewal is due, that leaves
//
//	TTL            15 s (default)   10 s     5 s      2 s
//	of no answer   8.5 s            5.7 s    2.8 s    1.1 s
//
// An election after the leader has died takes one to two seconds with etcd's defaults (--election-timeout
// 1000), and more if votes are split or a disk stalls. Then there are pauses of the process itself, by
// the scheduler, a CPU quota or the collector. So with a TTL below 5 s the crash of etcd's leader may
// cost holders their locks; what is below 2 s etcd raises to that. Long TTLs cost nothing but the wait
// after a crash; a process that ends in good order (Close of the Keeper or Session) keeps nobody waiting.
//
// WithMargin is for the difference between clocks and for the time that the work takes to stop. If that
// is seconds, make it as long.
//
// # Client
//
//	clientv3.Config{
//		Endpoints:            []string{"https://a:2379", "https://b:2379", "https://c:2379"},
//		DialTimeout:          5 * time.Second,
//		DialKeepAliveTime:    10 * time.Second,
//		DialKeepAliveTimeout: 5 * time.Second,
//		Username:             "orders", Password: password,
//		Logger:               logger,
//	}
//
// Why so, and what to leave alone:
//
//   - Endpoints: all members. Requests take them in turn, and an attempt without an answer is repeated
//     with the next. With one endpoint, a member that is down for longer than the table above says costs
//     the session.
//   - DialKeepAliveTime: without it a connection whose packets vanish is noticed only when the kernel
//     gives up, and costs every attempt that it is chosen for until then. gRPC raises values below 10 s
//     to 10 s; etcd closes connections that ping more often than --grpc-keepalive-min-time, 5 s.
//     DialKeepAliveTimeout is 20 s if not given.
//   - PermitWithoutStream: leave it off. etcd does not permit pings while no request is under way, and
//     closes connections that send them.
//   - DialTimeout does not bound connecting. It bounds the first authentication, in clientv3.New, which
//     otherwise waits for ever if there is a user and no member answers.
//   - MaxUnaryRetries, BackoffWaitBetween: leave them. The client repeats reads that a member could not
//     serve (up to 100 times, about 25 ms between rounds), and writes only if they were not sent. This
//     library bounds every attempt and does the rest.
//   - Username and Password rather than Token: with a password the client gets a new token when one has
//     expired.
//   - Logger: by default the client writes each failed attempt to the standard error.
//
// One client per process is enough. Close the Keeper before the client. If the client is closed first, its
// sessions are lost at once: waits and holds end with ErrLost, Observe, Sizes and Run with an error that
// says so, and the keys stay for up to a TTL.
//
// # What to watch
//
// In the process: session.WithOnChange tells AtRisk (a renewal is overdue; alert if it is often), Lost
// (alert), Live and Closed. [Hooks] tell waits, losses and how long locks are held: count Lost, and keep
// a histogram of Acquired.Waited and Released.Held. A Released whose Err is ErrLost, and no Lost
// for that hold, is a loss that only the release found out, or that came while it was under way; one
// whose Err is neither ErrLost nor ErrClosed is a release that goes on in the background. A wait that
// times out has the owner in its error ([BlockedError]).
//
// In etcd's metrics (the names are those of 3.4 to 3.7; with "debugging" in it a name may change):
//
//	etcd_server_has_leader                      0: nothing is granted or renewed
//	etcd_server_leader_changes_seen_total       each change delays the expiry of leases by up to a TTL
//	etcd_disk_wal_fsync_duration_seconds        each lock and each release waits for it, on a majority
//	etcd_disk_backend_commit_duration_seconds   long: everything waits
//	etcd_server_slow_apply_total                requests that took long to apply; herds, large reads
//	etcd_server_proposals_failed_total          writes that did not get through
//	etcd_debugging_server_lease_expired_total   sessions that ended without Close: crashes, losses (and the
//	                                            leases of WithMinHold)
//	etcd_debugging_lease_granted_total          rises fast: a session per request, where there should be one
//	                                            per process
//	etcd_debugging_mvcc_watcher_total           waiters, holds older than a second, observers
//	etcd_debugging_mvcc_slow_watcher_total      watches that are behind; lasting: the member cannot keep up
//	etcd_mvcc_db_total_size_in_bytes            against etcd_server_quota_backend_bytes
//	etcd_mvcc_db_total_size_in_use_in_bytes     far below the former: defragment
//	etcd_debugging_mvcc_keys_total              keys that exist; each hold, waiter and semaphore is one or more
//
// # Looking into a queue
//
// In Go: [Inspect]. With etcdctl, for the lock "orders":
//
//	etcdctl get --prefix etcdlock/orders/ --sort-by=CREATE
//	etcdctl get --prefix etcdlock/orders/ --sort-by=CREATE -w fields    # CreateRevision is the token
//	etcdctl lease timetolive 7af9a220c872cd03 --keys                    # of x7af9a220c872cd03-0
//
// The first key holds the lock, the others wait in this order; of readers (s...) and permits (p...)
// several at the front may hold. The name of a key is made of the lease's number in hexadecimal, which is
// what "etcdctl lease" wants (after an Unlock within WithMinHold it is another one: see "Lease" in the
// fields, in decimal). The value says host, process, program, label and since when. A slash in a name is
// %2F in the key, other characters are escaped as in a URL.
//
// A lease whose remaining time is far below two thirds of the granted one has not been renewed when it
// was due. The process is gone or cut off, and the lock will be free when the time is over. If the lease
// is renewed and the lock does not move, the holder is stuck or just slow: look at it before anything
// else.
//
// # Freeing a lock
//
//	                 etcdlock.ForceRelease          etcdctl del <key>          etcdctl lease revoke <id>
//	removes          that place, if its token       whatever is at that key    every key of the session
//	                 is the given one               now
//	the holder       ErrLost within milliseconds, if it has held for a second; before that with the next
//	                 renewal (of a lease) or when the second is over (of a key)
//	its other locks  stay                           stay                       are lost
//	a waiter         its Lock fails with ErrLost, at the next look at the latest (10 s); a Campaign goes on,
//	                 at the end of the line
//	those behind     move up at once
//
// Prefer ForceRelease: between a look and a delete the key may have become another hold's, since names
// are used again. With etcdctl the same is
//
//	etcdctl txn <<'END'
//	create("etcdlock/orders/x7af9a220c872cd03-0") = "4711"
//
//	del etcdlock/orders/x7af9a220c872cd03-0
//
//
//	END
//
// Never delete a whole prefix while its users run. And note that here, other than after a crash, the next
// owner does not wait for the old one: it is only the guard or the token that keeps a holder from writing
// which has not looked yet. If it has neither, stop its process first.
//
// # Sizing
//
// The tables under Cost here and in package fairqueue count requests and raft entries. In short: a lock
// and its release are two raft entries, whether it was free or not, a refused TryLock none. A raft entry
// is an fsync on a majority, which concurrent ones share.
//
//   - Sessions: 3/TTL renewals a second for each, no raft entry. A thousand sessions of 15 s are 200
//     requests a second. One session per process is enough for any number of locks.
//   - Watches: one for each waiter and for each hold older than a second, and a read of one or two keys
//     about every 10 s; after a wait its watch is kept for a second, up to 64 of a session. Watches of a
//     session share a stream, whatever metadata the contexts of its callers carry. With a password the
//     stream stays open until the session ends, with one more watch, since opening it is an authentication.
//   - Streams of a connection (a proxy may limit them): one for watches, and one for each request or
//     renewal while it is under way. A limit of two is enough for one session.
//   - Queues: a waiter is notified of one event. A join behind thousands costs more, since a look reads
//     all of them, and so does what comes later: with more than 512 in line each grant of a Mutex takes
//     a raft entry more, in which the owner tells its successor that it need not look. Many goroutines
//     of one process that want one lock are better off with [WithLocalHandover].
//   - Revisions: every lock and every release makes one. 20,000 pairs on one name grew the database by
//     5.6 MB, so at 100 pairs a second the default quota of 2 GiB is full within a day if nothing is
//     compacted. Auto-compaction is off by default: set --auto-compaction-retention=1h, or less. Deleted
//     keys also stay in the index until then, and every read of the queue passes over them; names are
//     used again, so it is one for each session, not one for each lock. Waiters and observers do not mind
//     a compaction.
//   - A full database (alarm NOSPACE): new locks and sessions fail with etcd's error, at once; held ones
//     stay, are renewed, and can be released. Waiters get their turn, but for those of a semaphore, who
//     would have to write. Compact, "etcdctl defrag", and "etcdctl alarm disarm".
//
// # Brown-outs
//
// A call whose context ends while etcd is slow leaves work behind: its request may take effect later, and
// what it has created has to be removed. A session has about 128 of these under way at a time. Further calls wait until
// some are answered, and fail with their context's error if that ends before; they have sent nothing. So raise the
// callers' timeouts rather than the number of attempts. A request that is never answered costs one write
// and one deletion once etcd answers again. The write creates a key, at etcdlock/!/epoch/<lease>, which stays as long
// as the session does; see Epochs in package fairqueue. A user with permission for neither that folder nor one below
// the lock's prefix pays with a read every 10 s for each name that such a request may still create.
//
// BenchmarkBrownout has 64 mutexes on one Keeper, an etcd whose transactions take 300 ms for 15 s, and 400 goroutines
// that give each Lock 30 ms, again and again. It measures 10 s without callers, before and one minute after, of
// client and server in one process on two cores:
//
//	                            before   after   after, without epochs and limit
//	requests                    2        2       2,512
//	processor time              411 ms   382 ms  10,689 ms
//	keys                        0        1       0
//	heap, the log of etcd's     3.9 MB   8.9 MB  98.9 MB
//	  raft and tests included
//	requests while it is slow            536     5,835
//	a fresh lock afterwards              4 ms    27 ms
//
// # Upgrades and restores
//
// Members may be restarted one after the other: what needs the missing one is repeated with another. Each
// change of leader holds up renewals for the time of an election. Wait for a restarted member to be
// healthy before taking down the next.
//
// Users of the library may be upgraded one after the other, too: the keys are a wire format (package
// fairqueue). Close the Keeper at the end of a process, or its locks stay for up to a TTL.
//
// A restored snapshot brings back the locks that were held when it was made, with their leases. If the
// session of such a lock still lives it goes on renewing, and nobody may know any more that the lock is
// held. Tokens granted after the snapshot have been seen by stores, and etcd does not know of them. So
//
//  1. stop the users of the locks,
//  2. restore every member with "etcdutl snapshot restore --bump-revision 1000000000 --mark-compacted"
//     (3.4.23 does not have it), by more than there were revisions since the snapshot,
//  3. delete what is left: etcdctl del --prefix etcdlock/ (with it goes the size of a semaphore that was
//     resized),
//  4. start the users.
//
// etcd itself restores without --bump-revision, too; but then tokens start again where the snapshot was,
// and stores refuse those who rightly hold.
//
// Users that run on while etcd goes back, because it was restored without --bump-revision or wiped and has its
// addresses again, are told:
//
//	a session          lost with its next renewal (TTL/3), or with an earlier answer of the quorum, which each
//	                   lock and release is; at the first answer at all if the cluster has another ID
//	holds, waits       end with the session, with ErrLost and "etcd went back from revision 4711 to 42" or
//	                   "another cluster answers"
//	Keeper, Run        go on with a new session
//	Observe, Sizes     how things stand, a vacancy included, within 15 s; then every change again
//
// The old lease is not renewed any more, and what it still holds in the restored data is free after a TTL.
// Others may have brought etcd beyond the old revision before a session hears of it. Then the session is lost
// with its next renewal only if its lease is not in the snapshot. Its holds and waits find out within 15 s
// that their keys are gone.
// A member that is merely behind ends no session.
package etcdlock
