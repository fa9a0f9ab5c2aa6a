// Package session keeps a lease in etcd alive and tells the truth about it.
//
// A [Session] is a lease together with one goroutine that renews it. Every key
// that the lock packages write is bound to a session, so that a process that
// dies takes its keys with it. A [Keeper] is a session that is replaced when it
// has been lost.
//
// # Guarantees
//
//  1. A session is reported lost before the server can expire its lease: the
//     deadline is the instant at which the last answered renewal was sent, plus
//     the TTL that the server returned, minus a margin. An answer that comes
//     late never stretches it, and neither does the request that created the
//     lease: the instant before sending counts.
//  2. Err, State and everything built on them compare with the clock when they
//     are called. A process that was stopped for longer than the TTL sees the
//     loss at its first look, whether or not a timer has fired yet.
//  3. A lost session never comes back. Done stays closed, Err stays non-nil.
//  4. Nothing is renewed after Close has returned, and the lease is gone if
//     Close returned nil and the session had not been lost.
//  5. Every request has a deadline of its own and is tried again, on another
//     endpoint if there is one, for as long as the caller's context and the
//     session last.
//  6. A session is lost as soon as an answer shows that etcd went back, as after a restore from a backup:
//     another cluster answers, or the quorum shows a lower revision than an answer that came before the
//     request was sent. Each renewal compares. A member that is behind ends no session.
//
// # Not guaranteed
//
// Nothing can stop a holder that does not look. Between a look at Err and the
// effect of what follows, the process may be suspended for any time. What must
// not happen after a loss has to be guarded where it takes effect: with a
// comparison in an etcd transaction, or with a fencing token elsewhere.
//
// The deadline trusts that this machine's clock and the etcd leader's run at
// about the same rate: within margin/TTL of each other, a tenth by default. It
// does not compare the time of day of any two machines.
//
// Revoking a lease takes effect on the server at once, but this process learns
// of it with its next request on that lease, at the latest with the next
// renewal. The locks watch their own key for faster news.
//
// A cluster that went back and has more revisions than before when the session first hears of it again looks
// like itself. Whether the lease is still there tells, and the locks watch their keys.
//
// # Clock
//
// On Linux the clock is CLOCK_BOOTTIME, which goes on while the machine is
// suspended, as the one by which other machines judge the lease does. Elsewhere
// it is Go's monotonic clock, which on some systems stops during a suspension;
// after one, a loss may then be noticed late. Timers stop during a suspension
// on every system, so after one Done may close late, but Err is right.
// [WithClock] replaces the clock in tests that run in virtual time.
//
// # States
//
//	Live ⇄ AtRisk → Lost
//	  └──────┴────→ Closed
//
// # Cost
//
// Creating a session takes one request, an idle session one per TTL/3, closing
// it one. There is one goroutine per session; others exist only while a Keeper creates it, while a renewal is under
// way, about ten of them if no attempt is answered, and while the queues share requests or remove keys.
// Watches share one stream; with a password it stays open until
// the session ends, held by a watch and a goroutine.
//
// A renewal whose answer shows a lower revision than is known, as from a member that is behind, costs a
// transaction that changes nothing: one raft entry.
//
// An attempt at a renewal is one call on the client's connection, not through the client's Lease. So
// a client with a password does not authenticate for it, and it keeps no stream open. Behind etcd's
// grpc-proxy, which does not answer such a call, the client's KeepAliveOnce follows each.
//
// The deadline that counts from the start of the request is what tikv/pd does
// for its leases (pkg/election/lease.go); etcd's own client counts from the
// receipt of the answer and looks once a second.
package session
