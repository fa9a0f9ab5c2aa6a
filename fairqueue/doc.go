// Package fairqueue is the queue in etcd on which every lock of this module
// stands: strictly first come, first served, without polling and without a herd.
// Most users want package etcdlock; this one is for building primitives.
//
// A ticket is a key directly under the queue's prefix, bound to the lease of a
// session. Its place in line is its create revision. The exclusive ticket with
// nothing ahead of it owns, and so does a shared one with no exclusive one ahead
// of it. Everybody else watches the deletion of exactly one key, the nearest
// ticket that blocks it, and looks again when that key is gone.
//
// # Invariants
//
//  1. Identity is key and create revision. Every delete is conditional on both,
//     and a watched name that is deleted and reborn is told by its revision.
//  2. A ticket ahead of another can only vanish: nobody is ever inserted before
//     somebody. So "mine is there, and nothing ahead of it blocks it, at revision
//     r" grants, whatever r is, as long as r is not below the ticket's own
//     revision nor below that of the news that raised the question. Such an
//     answer need not come from the quorum.
//  3. One name never means two tickets at a time: it is made of the lease and a
//     number that no other ticket of the session uses in this queue, and that is
//     free again only when the key is confirmed to be gone and no request that
//     creates it can take effect any more. A join that is tried again finds itself.
//  4. A waiter waits for one that it has seen, at a revision from which it has
//     been watching: between the look and the watch nothing can slip through. A watch that another
//     has used counts from what that one knew when it was done with it.
//  5. No single event is needed. A waiter looks again after any trouble with its
//     watch and from time to time without a reason, 10 s by default (WithRecheck).
//  6. Wait returns nil only if at some revision since the call of Join the ticket
//     existed and nothing blocked it, and the session was not known to be lost.
//  7. If a call fails, its ticket is given up. If it may exist, the session removes
//     it in the background.
//  8. Tickets of a group have one revision and stand in different queues. A wait is always for a
//     lower revision, so groups cannot wait for each other in a circle. No two tickets
//     of one queue ever have the same revision.
//     So what goes out together carries at most one join per queue, and leaves come first.
//  9. A ticket for permits owns exactly if the weights of all ahead of it, waiting or not, and its own are
//     no more than the size. Those ahead can only vanish, so it goes on to own; and since
//     who waits counts as well, nobody is overtaken.
//  10. An exclusive ticket is marked as shared only by its owner. So nothing stands ahead of a
//     marked one, and a shared ticket with nothing else in its way owns too.
//  11. An exclusive ticket is marked as an owner's only when it owns. So when the nearest one ahead goes
//     with that mark, nothing is ahead any more, and of what grants (invariant 2) only that
//     the own ticket is there is left to ask. The mark is only ever put on the value with which the ticket
//     was created, so it replaces none of the others.
//  12. Set replaces only the very value that it knows of, by the revision at which that was written. So an attempt that
//     comes late replaces nothing newer, nor takes a key back from the lease that Linger has moved it to.
//
// # Not guaranteed
//
// A granted ticket can be lost with its session, or because somebody deletes the
// key; see [Ticket.Lost] and [Ticket.Guard]. A look or a watch on a member that is
// behind makes a grant late, never wrong.
//
// # Keys
//
//	<prefix>/x<lease>-<slot>   exclusive ticket, lease and slot in hexadecimal
//	<prefix>/s<lease>-<slot>   shared ticket
//	<prefix>/p<lease>-<slot>-<weight>            ticket for permits
//	<prefix>/l<lease>-<slot>[-<priority>]        candidate, with a value of the caller's
//	<prefix>/!size/<size>-<size>                 size of a semaphore; without a lease
//	<prefix>!/slot/<number>/x<lease>-<slot>      owner of a number, a queue of its own
//
// This is a wire format. Any other key directly under the prefix counts as a ticket too, one
// that blocks shared ones unless its name begins with s, and takes all permits. So the queue
// can be shared, safely and in order, with etcd's own concurrency package, its lock service and
// etcdctl, which use <prefix>/<lease> and see our keys as tickets, too. Keys further down
// belong to other queues and are passed over. A candidate that [Ticket.PassTo] has chosen knows it by its
// key's modification, which is later than its creation.
//
// Names are used again rather than made afresh, because deleted keys stay in
// etcd's index until a compaction and every range walks over them. The value
// says who the owner is, for people and for Entries; nothing decides on it, but for the marks
// with which an exclusive ticket's begins when its owner lets shared ones in, or has owned in a
// long queue.
//
// # Epochs
//
// A join that is not answered leaves a doubt: its request may be held up and arrive when nobody wants the
// ticket any more. So each join carries the condition that the session's epoch is the one in which
// its attempt began. To end a doubt the session begins another epoch, which takes one write, and removes what the
// earlier ones have created. The key of an epoch is beside the queue, so that all queues of a namespace share it. A
// group uses the epoch of its first queue.
//
//	<folder of the prefix>/!/epoch/<lease>     by default
//	<prefix>/!/epoch/<lease>                   if the user has no permission for that, and not WithOtherPrograms
//
// It exists only after a doubt, for as long as the session. If a user has permission for neither, names in doubt are
// looked at every 10 s until the session ends, and not used again.
//
// # Cost
//
//	operation                          round trips                        raft entries
//	join when free                     1                                  1
//	join and wait, at most 64 tickets  join, watch, 1 one-key read, look  1
//	  within a second of such a wait   join, look                         1
//	  for the same name, that ended
//	  with its event
//	  more tickets                     one look more, which waiters of    1
//	                                   one session share
//	  more than 512, both it and the   one transaction instead of the     1 more
//	  owner exclusive, who had to      last look
//	  wait too
//	try when held                      1 read                             0
//	try when free                      1 read + 1                         1
//	leave                              1                                  1
//	a group                            as one ticket; 1 read more for     1
//	                                   more than 64 tickets, up to 5
//	                                   for more than 42 shared, 1 if
//	                                   it had to wait
//	any n of several, some free        1 read + 1                         1
//	  none free                        2, a watch and looks for each, 1   2
//	permits, after a wait              1 more                             1 more
//	a number with them                 1 read + 1                         1
//	Share, Set                         1                                  1
//	PassTo                             2 reads + 1                        1
//	GiveWay, none is higher            1 read                             0
//	Resize                             1 read + 1                         1
//	Linger                             2                                  2
//
// These are the requests of a lone caller. Joins, tries and leaves of single tickets that
// goroutines of one session ask for while others are under way go out together, up to 64 in
// one request and one raft entry, and so do reads, up to 64 keys or ranges in one request; see
// internal/link.
//
// More than 512 tickets: what is counted is all keys below the prefix, when somebody last looked. From
// the owner before, a successor knows that nothing else was ahead, so it only writes, on condition that its
// own ticket is there, that it owns; that goes on until about 64 are left.
//
// The one-key read is saved if nothing has happened between join and watch. A look
// costs the server 0.2 µs per ticket in the queue (0.6 µs before etcd 3.7), and is
// asked twice if the member was behind the event. Without news, a waiter reads its
// own key and the one it waits for about every 10 s, and starts another watch; if there were more than
// 2,000 tickets when it came, less often at first, down to once a minute. To mark a ticket delays its
// grant by up to a second if etcd does not answer.
//
// # Why it is built this way
//
// A watch that starts at a revision in the past is served by a loop that runs
// every 100 ms, so a waiter watches from now on and checks once, when the watch
// stands, that what it waits for is still there. A range that sorts or filters by
// revision reads the whole prefix whatever its limit, and in a write transaction
// it does so in the apply loop of the whole cluster, so the transaction of a join
// only carries a range that is limited in key order, which brings back the whole
// queue when it is short. Ranges ask for keys only: etcd answers those from memory.
package fairqueue
