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
//     [Member.Isolate], [Cluster.MoveLeader].
//   - The data: [Cluster.Compact].
//
// # Who may connect
//
// Anybody, unless the cluster is started with certificates ([WithTLS],
// [WithMutualTLS]) or with users and permissions ([WithAuth]). The clients of this
// package are set up for either. Certificates are made anew for each cluster, and are
// the same for its members' later runs. Faults work as ever; a [Link] then carries
// encrypted bytes.
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
//     takes for fatal ends the goroutine, not the process.
//
// # What is not guaranteed
//
//   - Durability: members die as servers, not as processes or machines. Files are
//     always closed in good order (see [Member.Kill]).
//   - etcd's timing: elections and the smallest lease TTL are shorter than in
//     production unless [WithRealTicks] is given. The expiry of leases is checked
//     every 500 ms with any ticks. On a machine under heavy load a cluster of
//     several members may hold an election that nobody ordered.
//   - TLS between members, users by the name in a certificate, tokens other than
//     etcd's simple ones, learners, changes of the membership, and etcd's HTTP
//     handlers for clients (health, metrics) are not offered.
//   - etcd panics where its own invariants break. A panic ends the process, as it
//     does in production.
//
// The package sets one global variable of etcd's, the size of a log segment, when
// the first cluster starts. Logs of the gRPC library go where the test process
// sends them; by default that is nowhere unless there is an error.
package embedtest
