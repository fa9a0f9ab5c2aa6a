// Package embedtest runs a real etcd inside a test, with faults to order.
//
//	cluster := embedtest.Start(t, embedtest.WithSize(3))
//	client, link := cluster.Link(t)
//	link.Blackhole()                                     // this client's packets vanish
//	cluster.LoseReply("Txn", embedtest.Once())           // applied, but nobody hears of it
//	cluster.Leader().Kill()
//
// It is etcd's own server, package embed, in the process of the test. One member
// starts in 10 to 20 ms and three in about 100, because it runs without fsync
// and with a fast clock; nothing is mocked. What is left of it is mostly the disk's
// work: with TMPDIR on a file system in memory one member starts in 10.
//
// # Faults
//
//   - Between one client and the members: [Link], a black hole, a cut, a delay.
//   - Within a member's handling of requests, by gRPC method: [Fault], a request
//     lost, an answer lost after the request was applied, either held back, a
//     request refused, renewals unanswered, watch events swallowed.
//   - The members themselves: [Member.Stop], [Member.Kill], [Member.Restart],
//     [Member.Isolate], [Cluster.MoveLeader]; and the membership,
//     [Cluster.AddMember] and [Member.Remove].
//   - The data: [Cluster.Compact], an alarm ([Cluster.RaiseAlarm]), and older data on
//     the same addresses, [Cluster.Restore] and [Cluster.Wipe].
//
// # Who may connect
//
// Anybody, unless the cluster is started with certificates ([WithTLS],
// [WithMutualTLS]) or with users and permissions ([WithAuth]). The clients of this
// package are set up for either. Certificates are made anew for each cluster, and are
// the same for its members' later runs. Faults work as ever; a [Link] then carries
// encrypted bytes.
//
// # Limits and cost
//
// [WithConfig] changes etcd's own configuration: how many streams a connection may
// have, how large a transaction or a request may be. The database has etcd's default
// quota, 2 GB, and nothing compacts it. QuotaBackendBytes sets another quota, and
// AutoCompactionMode with AutoCompactionRetention lets etcd compact by itself, which a
// test that writes for hours needs. What code asks of etcd is told
// by [Cluster.Calls], [Cluster.OpenStreams], [Cluster.StreamsOpened] and
// [Cluster.AppliedIndex].
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
// It is the same etcd, on the bubble's clock: time stands still while anybody has
// something to do, requests and the disk included, and jumps to the next timer when
// nobody has. So a request takes no time unless a fault makes it, a lease ends
// within 500 ms after its TTL, and a sleep means: so much later. An hour with
// one idle member takes a quarter of a second of the processor, four times that with
// the race detector, because etcd's own timers go off all the while.
//
// Everything here works except what needs a second member: several members are
// refused. What is different:
//
//   - Clients must be this package's. The members listen in memory and
//     [Cluster.Endpoints] are only names. All that uses the cluster has to
//     live in the bubble and to end before it does; Start's Cleanup is part of it.
//   - The clients' Watcher is not etcd's, of which a goroutine waits for a channel from
//     outside the bubble, so that time would stand still for ever. It opens a stream
//     for each watch, so [Cluster.Calls] counts no cancellations under Watch;
//     [Cluster.LoseRequest] and the like see one stream per watch. It has no
//     RequestProgress. The error of a watch has the code FailedPrecondition if
//     it is not one of package rpctypes.
//   - A raft tick is 200 ms unless [WithRealTicks] is given, an election takes up to a second,
//     and the smallest TTL of a lease is 2 s, as in production.
//   - Clients look for a member that is down every second.
//   - No process outside, no network, no sleep in C: who waits for them keeps the
//     time from moving. The clock of the system does not follow the bubble; code that asks
//     it, as sessions do on Linux unless told otherwise, has to be given another.
//   - Timers that go off at the same instant do so in any order.
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
//  4. A fault bites everything that comes after the call that ordered it has
//     returned, until it is healed or used up. What a fault does not reach is said
//     at the method that orders it.
//  5. Nothing is written to the terminal unless a test fails. An error that etcd
//     takes for fatal ends the goroutine, not the process. Data that are damaged or
//     incomplete are an error of [Open] and [Member.Restart], which read all of them
//     first.
//
// # What is not guaranteed
//
//   - Durability: members die as servers, not as processes or machines. Files are
//     always closed in good order (see [Member.Kill]).
//   - etcd's timing: elections and the smallest lease TTL are shorter than in
//     production unless [WithRealTicks] is given. The expiry of leases is checked
//     every 500 ms with any ticks. On a machine under heavy load a cluster of
//     several members may hold an election that nobody ordered.
//   - TLS between members, users by the name in a certificate, learners, and etcd's
//     HTTP handlers for clients (health, metrics) are not offered.
//   - etcd panics where its own invariants break. A panic of a member that has
//     started ends the process, as it does in production.
//
// The package sets one global variable of etcd's, the size of a log segment, when
// the first cluster starts. Logs of the gRPC library go where the test process
// sends them; by default that is nowhere unless there is an error.
package embedtest
