// Package proof holds the evidence that the promises of package etcdlock hold when things
// break. It consists of tests.
//
// Clients use all kinds of locks on a few names while seeded random faults hit members,
// links, replies, watches, leases and keys. What they did and believed is recorded and has to
// be explained by a sequential model of the locks (porcupine checks that): a hold counts from
// the return of Lock until the last moment at which its Err was nil. A second check runs while
// the clients work: whoever gets a lock looks at once whether somebody else believes in it.
// After each storm everybody has to get every lock again, and nothing may be left in etcd.
//
//	go test ./etcdlock/proof                               # about a minute, fixed seeds
//	go test ./etcdlock/proof -chaos=30m -timeout=0         # random seeds, printed
//	go test ./etcdlock/proof -run TestStorms -seed=42      # one of them again
//
// A storm that violates something leaves its history as a page to look at, with -visualise=dir.
//
// That the check can fail is shown with locks that are broken on purpose.
package proof
