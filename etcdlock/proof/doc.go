// Package proof holds the evidence that the promises of package etcdlock hold when things
// break. It consists of tests.
//
// Several clients, most of them with a dozen goroutines on one session, use all kinds of locks on a
// few names while seeded random faults hit members, links, requests, replies, watches, leases, keys
// and the clients themselves. Three checks compare what they were told with each other and with etcd:
//
//   - Each client that gets a lock looks at once whether another believes in it.
//   - All that was done and believed has to be explained by a sequential model of the locks
//     (porcupine checks that): a hold counts from the return of Lock until the last moment at which
//     its Err was nil.
//   - A witness reads the history of all keys in the stores of the members, where no fault hides
//     anything. A granted lock must have owned by that history at some revision during the call, with
//     the rule of who owns written a second time; nobody may believe in a key that is gone; an Unlock, Close
//     or Transfer that succeeded must have done what it promises.
//
// Every call has to return in time. When the trouble is over every key of a failed call has to vanish while
// its session lives, everybody has to get every lock again, and after Close no key, lease or goroutine
// may be left.
//
//	go test ./etcdlock/proof                               # about a minute, fixed seeds
//	go test ./etcdlock/proof -chaos=30m -timeout=0         # random seeds, printed
//	go test ./etcdlock/proof -run TestStorms -seed=42      # one of them again
//
// A seed decides the faults, not the history: goroutines and etcd keep their own time. With -visualise=dir, a storm
// that breaks a promise leaves its history as a page.
//
// Tests with locks that are broken on purpose, and with histories that are written by hand, show that the
// checks can fail.
package proof
