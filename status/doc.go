// Package status shows the locks of an etcd on a web page, and tells whether a process can take locks.
//
//	page := status.New(client)
//	defer page.Close()
//	http.Handle("/debug/locks/", page)
//
// [New] returns a [Page], which does not authenticate: every client that reaches it can read it. Mount it behind what does.
// "etcdlock web" serves the same page on the loopback address.
//
// Below the path that it is mounted at, which may be any that does not end in /api/, with or without [http.StripPrefix]:
//
//	/                   all locks, those that need attention first; ?q= those whose names have a text
//	/lock?name=         one lock: its holders and waiters in order, with their leases
//	/events             changes of either page as server-sent events
//	/api/               an array of [Lock], as "etcdlock ls -o json" prints it; ?q= as above
//	/api/lock?name=     a [Queue], as "etcdlock inspect -o json" prints it
//
// The page needs no script. With script it updates itself, and its ages tick; without, it loads itself again every 10 s.
// A lock is "slow" when its first waiter has waited for a minute, and "stuck" after ten ([WithSlowAfter]). Candidates of
// an election may wait for ever.
//
// # Guarantees
//
//  1. It only reads. The client needs no permission but to read the locks, and a page cannot be made to change anything.
//  2. All viewers share one [etcdlock.FollowAll]. It runs from the first request until 30 s after the last, streams
//     included. Besides that a page reads a key every second, to know whether etcd answers. Viewers of one lock share a read
//     of it, with a request for each lease, once a second at most. With nobody looking a page makes no request.
//  3. A viewer gets at most two updates a second and 1,000 rows. One that is slow gets the latest state and no backlog. One
//     that takes nothing for 20 s is disconnected.
//  4. Names, labels, values and hosts are others' texts. They are escaped, what is not printable is replaced, and a
//     Content-Security-Policy allows nothing but the page's own script and style. Only locks below the page's namespace or
//     prefix are shown.
//  5. If etcd does not answer, or refuses, the page says so within 5 s and shows what it has. The JSON is refused with 503
//     then. If the page's server cannot be reached the script says so within 10 s.
//  6. [Page.Close] ends all goroutines and requests of the page.
//
// # Not guaranteed
//
// Ages count from when a holder or waiter joined the line, by its own clock. A picture is not of one moment: locks that
// change at the same time may be shown one after the other. A page keeps a summary of every lock in memory, beside what
// FollowAll keeps.
//
// # Reverse proxies
//
// Streams ask not to be buffered (X-Accel-Buffering, Cache-Control: no-transform), and have an event every 3 s. A browser
// opens at most six connections to a host over HTTP/1.1, one for each tab; over HTTP/2 there is no such limit.
package status
