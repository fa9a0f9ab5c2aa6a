// Package fairqueue is the queue in etcd on which every lock of this module stands: strictly first come, first
// served, without polling and without a herd. Most users want package etcdlock. This package is for building other
// primitives, and its API may still change.
//
// A ticket is a key directly under the queue's prefix, bound to the lease of a
// session. Its place in line is its create revision. The exclusive ticket with
// nothing ahead of it owns, and so does a shared one with no exclusive one ahead
// of it. Every other ticket watches the deletion of exactly one key, the nearest
// ticket that blocks it, and looks at the queue again when that key is gone.
//
// # Invariants
//
//  1. A ticket is identified by key and create revision. Every delete is conditional on both,
//     and a watched name that is deleted and created again is recognized by its revision.
//  2. A ticket ahead of another can only vanish: none is ever inserted before it. So an answer that has the
//     ticket, and nothing ahead that blocks it, grants, if its revision is not below the ticket's own, nor
//     below that of the event that raised the question. Such an answer need not come from the quorum.
//  3. One name never means two tickets at a time: it consists of the lease and a
//     number that no other ticket of the session uses in this queue. The number is
//     free again only when the key is confirmed to be gone and no request that
//     creates it can take effect any more. A join that is retried finds itself.
//  4. A waiter waits for a ticket that it has seen at a revision from which it has been
//     watching: no event between the look and the watch is missed. A watch that another waiter
//     has used counts from the last event that the other has seen.
//  5. No single event is needed. A waiter looks again after a failure of its
//     watch, and about every 10 s without a reason (Options.Recheck).
//  6. Wait returns nil only if at some revision since the call of Join the ticket
//     existed and nothing blocked it, and the session was not known to be lost.
//  7. If a call fails, its ticket is given up. If it may exist, the session removes it
//     in the background.
//  8. Keys of one ticket in several queues have one revision. A wait is always for a
//     lower revision, so tickets cannot wait for each other in a circle. No two tickets
//     of one queue ever have the same revision: a shared request carries at most one join per queue.
//  9. A ticket for permits owns if the weights of all tickets ahead of it, waiting or not, and its own are
//     no more than the size. Those ahead can only vanish, so it goes on to own. Waiting tickets count, so none
//     is overtaken.
//  10. An exclusive ticket is marked as shared by its owner, or from the beginning if it is upgradeable. A shared
//     ticket with nothing else in its way owns too. The mark is removed only at a revision at which no shared ticket
//     owns, so a shared ticket that owns goes on to do so (Ticket.Upgrade says how).
//  11. An exclusive ticket is marked as an owner's only when it owns. So when the nearest ticket ahead is deleted
//     with that mark, nothing is ahead any more, and only the own ticket has to be there (invariant 2). The mark
//     replaces only the value with which the ticket was created.
//  12. Set replaces only the value that it knows, by its revision. So an attempt that arrives late replaces
//     nothing newer, nor takes a key back from the lease that ReleaseAfter has moved it to.
//
// # Not guaranteed
//
// A granted ticket can be lost with its session, or because its key is deleted by hand; see [Ticket.Lost] and
// [Ticket.Guards]. A member of the cluster that is behind delays a grant, and never makes it wrong.
//
// # Keys
//
//	<prefix>/x<lease>-<slot>   exclusive or upgradeable ticket, lease and slot in hexadecimal
//	<prefix>/s<lease>-<slot>   shared ticket
//	<prefix>/p<lease>-<slot>-<weight>            ticket for permits
//	<prefix>/l<lease>-<slot>[-<priority>]        candidate, with a value of the caller's
//	<prefix>/!size/<size>-<size>                 size of a semaphore; without a lease
//	<prefix>!/slot/<number>/x<lease>-<slot>      owner of a number, a queue of its own
//
// This is a wire format. Any other key directly under the prefix counts as a ticket too, one
// that blocks shared ones unless its name begins with s, and takes all permits. So the queue
// can be shared, safely and in order, with etcd's own concurrency package, its lock service and
// etcdctl, which use <prefix>/<lease> and take our keys for tickets, too. Keys further down
// belong to other queues and are passed over. A candidate that [Ticket.PassTo] has chosen is recognized by its
// key's modification, which is later than its creation.
//
// Names are used again, because deleted keys stay in etcd's index until a compaction, and every range
// walks over them. The value of a key describes the owner, for people and for Entries. It decides nothing,
// except for the marks at the beginning of an exclusive ticket's value.
//
// # Epochs
//
// The request of an unanswered join may be held up and arrive when nothing waits for the
// ticket any more. So each join carries the condition that the session's epoch is the one in which
// its attempt began. To end the doubt the session begins another epoch, which takes one write, and removes what
// earlier ones have created. The key of an epoch is beside the queue, so all queues of a namespace share it. A
// ticket in several queues uses the epoch of the first.
//
//	<folder of the prefix>/!/epoch/<lease>     by default
//	<prefix>/!/epoch/<lease>                   if the user has no permission for that, and not Options.OtherPrograms
//
// It exists only after a doubt, for as long as the session. If a user has permission for neither, the session reads names in
// doubt every 10 s until it ends, and does not use them again. A session with many of them is replaced by its Keeper.
//
// # Cost
//
//	operation                          round trips                        raft entries
//	join when free                     1                                  1
//	join and wait, at most 64 tickets  join, watch, 1 one-key read, look  1
//	  more tickets                     one look more                      1
//	  more than 512 exclusive tickets  one transaction instead of a look  1 more
//	try when held                      1 read                             0
//	try when free                      1 read + 1                         1
//	  another ticket comes in between  1 more                             2
//	leave                              1                                  1
//	several queues                     as one; 1 read more after a wait   1
//	  more than 64                     up to 5 reads more                 1
//	any n of several, some free        1 read + 1                         1
//	  none free                        2, a watch and looks for each, 1   2
//	permits, after a wait              1 more                             1 more
//	a slot with them                   1 read + 1                         1
//	Share, Set                         1                                  1
//	Upgrade, no shared ticket          1                                  1
//	  beside shared ones               3, a watch and a look for a few    2
//	PassTo                             2 reads + 1                        1
//	candidate, after a wait            1 read more                        1
//	  another has a higher priority    2 reads more + 1                   2
//	Resize                             1 read + 1                         1
//	ReleaseAfter                       2                                  2
//
// These are the requests of a lone caller. Concurrent joins and leaves of one session share requests and raft
// entries, see package link.
//
// A look costs the server 0.2 µs per ticket in the queue (0.6 µs before etcd 3.7). Waiters of one session that
// join a long queue at the same time share one. An owner that had to wait among more than 512 tickets marks its
// key. Then its successor need not look: it only writes, on condition that its own ticket is there, that it owns
// too. A mark delays a grant by up to a second if etcd does not answer.
//
// Without an event, a waiter reads its own key and the one it waits for about every 10 s, and starts another
// watch. In a queue of more than 2,000 tickets it does so less often at first, down to once a minute.
//
// # Why it is built this way
//
// A watch that starts at a revision in the past is served by a loop that runs
// every 100 ms. So a waiter watches from now on, and checks once, when the watch
// has started, that the ticket that it waits for is still there. A range that sorts or filters by
// revision reads the whole prefix whatever its limit, and in a write transaction
// it does so in the apply loop of the whole cluster. So the transaction of a join
// only carries a range that is limited in key order, which brings back the whole
// queue when it is short. Ranges ask for keys only: etcd answers those from memory.
package fairqueue
