// Package status shows the locks of an etcd on a web page, and tells whether a process can take locks.
//
//	page := status.New(client)
//	defer page.Close()
//	http.Handle("/debug/locks/", page)
//
// [New] returns a [Page], which does not authenticate: every client that reaches it can read it. Mount it behind a
// handler that authenticates. "etcdlock web" serves the same page on the loopback address.
//
// Below the path that it is mounted at, which may be any that does not end in /api/, with or without [http.StripPrefix]:
//
//	/                   all locks, those that need attention first; ?q= those whose names have a text
//	/lock?name=         one lock: its holders and waiters in order, with their leases
//	/events             changes of either page as server-sent events
//	/api/               an array of [Lock], as "etcdlock ls -o json" prints it; ?q= as above
//	/api/lock?name=     a [Queue], as "etcdlock inspect -o json" prints it
//
// The page works without script, and loads itself again every 10 s then. With script it updates itself, and its ages
// count on. A lock is "slow" when its first waiter has waited for a minute, and "stuck" after ten ([WithSlowAfter]).
// Candidates of an election may wait for ever.
//
// # Guarantees
//
//  1. It only reads. The client needs no permission but to read the locks, and a page cannot be made to change anything.
//  2. All viewers share one [etcdlock.FollowAll]. It runs from the first request until 30 s after the last, streams
//     included. Besides that a page reads a key every second, to know whether etcd answers. Viewers of one lock share a read
//     of it, with a request for each lease, once a second at most. Without viewers a page makes no request.
//  3. A viewer gets at most two updates a second and 1,000 rows. A slow viewer gets the latest state and no
//     backlog. A viewer that receives nothing for 20 s is disconnected.
//  4. Names, labels, values and hosts are texts that any user of the locks can write. They are escaped, characters that
//     are not printable are replaced, and a Content-Security-Policy allows only the page's own script and style. Only
//     locks below the page's namespace or prefix are shown.
//  5. If etcd does not answer, or refuses, the page says so within 5 s and shows the last state. Requests for JSON get
//     status 503 then. If the page's server cannot be reached, the script says so within 10 s.
//  6. [Page.Close] ends all goroutines and requests of the page.
//
// # Not guaranteed
//
// Ages count from when a holder or waiter joined the line, by its own clock. The page is not of one moment: locks
// that change at the same time may be shown one after the other. A page keeps a summary of every lock in memory, in
// addition to the keys that FollowAll keeps.
//
// # Reverse proxies
//
// Streams ask not to be buffered (X-Accel-Buffering, Cache-Control: no-transform), and have an event every 3 s. A browser
// opens at most six connections to a host over HTTP/1.1, one for each tab; over HTTP/2 there is no such limit.
package status
