// Package embedtest runs a real etcd inside a test, with faults on demand.
//
//	cluster := embedtest.Start(t, embedtest.WithSize(3))
//	client, link := cluster.Link(t)
//	link.Blackhole()                                     // this client's packets vanish
//	cluster.LoseReply("Txn", embedtest.Once())           // applied, but the answer is lost
//	cluster.Leader().Kill()
//
// It is etcd's own server, package embed, in the process of the test. Nothing is mocked.
// One member starts in 10 to 20 ms and three in about 100, because they run without
// fsync and with a fast clock. Most of that time is the disk's: with TMPDIR on a file
// system in memory one member starts in 10 ms.
//
// # Faults
//
//   - Between one client and the members: [Link], a black hole, a cut, a delay.
//   - Within a member's handling of requests, by gRPC method: a [Fault] loses a
//     request, loses an answer after the request was applied, delays either, refuses a
//     request, leaves renewals unanswered, or swallows watch events.
//   - The members themselves: [Member.Stop], [Member.Kill], [Member.Restart],
//     [Member.Isolate], [Cluster.MoveLeader]; and the membership,
//     [Cluster.AddMember] and [Member.Remove].
//   - The data: [Cluster.Compact], an alarm ([Cluster.RaiseAlarm]), and older data on
//     the same addresses, [Cluster.Restore] and [Cluster.Wipe].
//
// # What really happened
//
// [Cluster.Record] records the history of all keys, revision by revision, from the stores of the members, where
// no fault hides a change. A test compares it with what its clients were told.
//
// # TLS and users
//
// Every client may connect, unless the cluster is started with certificates ([WithTLS],
// [WithMutualTLS]) or with users and permissions ([WithAuth]). The clients of this
// package are set up for either. Each cluster has new certificates, which its members keep
// when they restart. Faults work as without TLS; a [Link] then carries encrypted bytes.
//
// # Limits and cost
//
// [WithConfig] changes etcd's own configuration, such as the number of streams of a
// connection, or the size of a transaction or a request. The database has etcd's default
// quota, 2 GB, and nothing compacts it. QuotaBackendBytes sets another quota. A test that
// writes for hours needs AutoCompactionMode and AutoCompactionRetention.
// [Cluster.Calls], [Cluster.OpenStreams], [Cluster.StreamsOpened] and
// [Cluster.AppliedIndex] report what the code under test costs etcd.
//
// # Virtual time
//
// Inside a bubble of package testing/synctest a cluster that is started with
// [WithVirtualTime] lets hours of leases pass in a moment, and exactly:
//
//	synctest.Test(t, func(t *testing.T) {
//		cluster := embedtest.Start(t, embedtest.WithVirtualTime())
//		start := time.Now()
//		s, err := session.New(ctx, cluster.Client(t), session.WithClock(func() time.Duration { return time.Since(start) }))
//		...
//		time.Sleep(24 * time.Hour)
//	})
//
// It is the same etcd, on the bubble's clock. Time stands still while a goroutine of the
// bubble runs, requests and the disk included. It jumps to the next timer when all are
// blocked. So a request takes no time unless a fault delays it, a lease expires
// within 500 ms after its TTL, and a sleep only moves the time. An hour with
// one idle member takes a quarter of a second of processor time, and four times that with
// the race detector, because of etcd's own timers.
//
// Several members are refused. These things are different:
//
//   - Clients must be this package's. The members listen in memory and
//     [Cluster.Endpoints] are only names. All that uses the cluster has to
//     live in the bubble and to end before it does; Start's Cleanup is part of it.
//   - The clients' Watcher is not etcd's. A goroutine of etcd's waits for a channel from
//     outside the bubble, so time would stand still for ever. The one here opens a stream
//     for each watch. So [Cluster.Calls] counts no cancellations under Watch, and
//     [Cluster.LoseRequest] and the like see one stream per watch. It has no
//     RequestProgress. The error of a watch has the code FailedPrecondition if
//     it is not one of package rpctypes.
//   - A raft tick is 200 ms unless [WithRealTicks] is given, an election takes up to a second,
//     and the smallest TTL of a lease is 2 s, as in production.
//   - Clients look for a member that is down every second.
//   - No process outside, no network, no sleep in C: a goroutine that waits for them keeps
//     time from moving. The system's clock does not follow the bubble. Code that reads
//     it, as sessions do on Linux by default, has to be given another clock.
//   - Timers for the same instant fire in any order.
//
// # Guarantees
//
//  1. When [Start] or [Open] returns, every member serves, there is a leader, and
//     the cluster writes nothing more by itself.
//  2. Addresses are the cluster's own from its start to its end, also while a
//     member is down. Any number of clusters run next to each other, in one
//     process and in several.
//  3. [Cluster.Close] returns within a second in every state, with hanging clients
//     and without a quorum, and leaves no goroutine, socket or temporary file.
//     etcd's own shutdown would wait for streams, for a quorum, or for a successor
//     of the leader, so it is only run on a server that has been stopped hard.
//  4. A fault affects everything that comes after the call that ordered it has
//     returned, until it is healed or used up. The method that orders it says what it
//     does not reach.
//  5. Nothing is written to the terminal unless a test fails. An error that etcd
//     considers fatal ends the goroutine, not the process. [Open] and [Member.Restart]
//     read all data first, and return an error if they are damaged or incomplete.
//
// # What is not guaranteed
//
//   - Durability: members die as servers, not as processes or machines. Files are
//     always closed in good order (see [Member.Kill]).
//   - etcd's timing: elections and the smallest lease TTL are shorter than in
//     production unless [WithRealTicks] is given. The expiry of leases is checked
//     every 500 ms with any ticks. On a machine under heavy load a cluster of
//     several members may hold an election that no test ordered.
//   - TLS between members, users by the name in a certificate, learners, and etcd's
//     HTTP handlers for clients (health, metrics) are not offered.
//   - etcd panics where its own invariants break. A panic of a member that has
//     started ends the process, as it does in production.
//
// The package sets one global variable of etcd's, the size of a log segment, when
// the first cluster starts. Logs of the gRPC library go where the test process
// sends them; by default that is nowhere unless there is an error.
package embedtest
