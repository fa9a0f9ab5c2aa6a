// Package proof tests that the promises of package etcdlock hold when things break. It
// consists of tests.
//
// Several clients, most of them with a dozen goroutines on one session, use all kinds of locks on a
// few names. Meanwhile random faults, from a seed, hit members, links, requests, replies, watches, leases, keys
// and the clients themselves. Three checks compare the results of the calls with each other and with etcd:
//
//   - A client that gets a lock checks at once that no other client believes to hold it.
//   - A sequential model of the locks has to explain all calls and holds (porcupine checks that). A hold
//     counts from the return of Lock until the last moment at which its Err was nil.
//   - A witness reads the history of all keys in the stores of the members, where no fault hides
//     anything. By that history, a granted lock must have owned at some revision during the call. The rule of
//     ownership is written a second time for this. No client may believe in a key that is gone. An Unlock,
//     Close or Transfer that succeeded must have done what it promises.
//
// Every call has to return in time. After the faults, every key of a failed call has to vanish while its session
// lives, every client has to get every lock again, and after Close no key, lease or goroutine may be left.
//
//	go test ./etcdlock/proof                               # half a minute, fixed seeds
//	go test ./etcdlock/proof -chaos=30m -timeout=0         # random seeds, printed
//	go test ./etcdlock/proof -run TestStorms -seed=42      # one of them again
//
// A seed decides the faults, not the history: goroutines and etcd keep their own time. With -visualise=dir, a storm
// that breaks a promise leaves its history as a page.
//
// Tests with locks that are broken on purpose, and with histories that are written by hand, show that the
// checks can fail.
package proof
