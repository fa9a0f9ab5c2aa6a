// Package session keeps a lease in etcd alive, and reports its loss in time.
//
// A [Session] is a lease together with one goroutine that renews it. Every key
// that the lock packages write is bound to a session, so the keys of a process
// vanish when it dies. A [Keeper] replaces a session that has been lost. At the
// end of a process [Keeper.Drain] waits until its locks are released.
//
// # Guarantees
//
//  1. A session is reported lost before the server can expire its lease. The
//     deadline is the instant at which the last answered renewal was sent, plus
//     the TTL that the server returned, minus a margin. A late answer never
//     stretches it. The same holds for the request that created the lease.
//  2. Err, State and all that is built on them compare with the clock when they
//     are called. A process that was suspended for longer than the TTL finds the
//     loss at its first call, whether or not a timer has fired yet.
//  3. A lost session never comes back. Done stays closed, Err stays non-nil.
//  4. No renewal is sent after Close has returned. If Close returned nil, and the
//     session had not been lost, the lease is gone.
//  5. Every request has its own deadline. It is repeated, on another endpoint if
//     there is one, for as long as the caller's context and the session last.
//  6. A session is lost as soon as an answer shows that etcd went back, as after a
//     restore from a backup: another cluster answers, or the quorum shows a lower
//     revision than an answer that came before the request was sent. Each renewal
//     compares. A member that is behind ends no session.
//
// # Not guaranteed
//
// A suspended process cannot notice a loss. It may be suspended for any time between
// a call of Err and the effect of the next step. What must not happen after a loss
// has to be guarded where it takes effect: with a comparison in an etcd transaction,
// or with a fencing token elsewhere.
//
// The deadline is right if this machine's clock and the etcd leader's run at about
// the same rate: within margin/TTL of each other, a tenth by default. The time
// of day of two machines is never compared.
//
// Revoking a lease takes effect on the server at once. This process learns of it with
// its next request on that lease, at the latest with the next renewal. The locks
// learn of it earlier, by watching their own key.
//
// A cluster that went back may have passed the old revision again before the session's next
// request, and may have had as many elections as before. Then its answers do not show it. The
// session is lost if its lease is gone. The locks find within 15 s that their keys are gone.
//
// # Clock
//
// On Linux the clock is CLOCK_BOOTTIME, which goes on while the machine is suspended, as
// the clock of the etcd leader does. Elsewhere it is Go's monotonic clock, which on some
// systems stops during a suspension. After one, a loss may be noticed late. Timers
// stop during a suspension on every system, so Done may close late afterwards, but Err is
// right. [WithClock] replaces the clock in tests that run in virtual time.
//
// # States
//
//	Live ⇄ AtRisk → Lost
//	  └──────┴────→ Closed
//
// # Cost
//
// Creating a session takes one request, and so does closing it. An idle session sends one message per TTL/3. A session
// has one goroutine, and each client with sessions has one. Others exist while a Keeper creates a session, while a call
// renews (about ten if no attempt is answered), and while the queues share requests or remove keys. All watches of a
// client share one stream. With a password it stays open until the session ends, which takes a watch and a goroutine.
//
// An answer to a renewal may have a lower revision than is known, as from a member that is behind. Then a transaction
// that changes nothing asks the quorum: one raft entry.
//
// The sessions of a client renew on one stream, as those of etcd's own client do. A client with a password
// authenticates when the stream is opened. If a renewal is not answered there, the next attempts are calls, each on
// the next endpoint. They use the client's token. A stream that fails is opened again after a minute at the earliest.
// A stream also counts as failed if it leaves a connection no room for two more, as under a proxy's limit. Until then
// every renewal is a call, which costs about twice as much. etcd's grpc-proxy does not answer such a call. Behind it,
// the client's KeepAliveOnce follows each.
//
// tikv/pd counts the deadline of its leases from the start of the request too (pkg/election/lease.go). etcd's own
// client counts from the receipt of the answer, and compares it with the clock once a second.
package session
