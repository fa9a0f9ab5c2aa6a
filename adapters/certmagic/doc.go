// Package certmagiclock gives [certmagic], and so Caddy, locks in etcd, and storage there. [Wrap] puts the locks over any
// storage. [NewStorage] keeps the certificates in etcd too.
//
//	certmagic.Default.Storage = certmagiclock.NewStorage(client, sessions, "certmagic")
//
// # Guarantees
//
//  1. Of all processes that use the same locks, one at a time obtains or renews the certificate of a name, registers the
//     account, or cleans the storage. Waiters are served in order, and do not poll.
//  2. The lock of a crashed process is free after the TTL of its session, 15 s by default.
//  3. After a loss [certmagic.Locker]'s Unlock returns nil, and the function for losses is called. certmagic would keep a
//     name whose Unlock failed in a list, and unlock it again when the process ends.
//  4. Load returns the value of the last Store, from whichever process. Store and Delete are repeated for up to 30 s while
//     etcd cannot be reached, and an attempt that arrives late replaces no later value.
//
// # Not guaranteed
//
//   - Nothing stops certmagic's work when a lock is lost: its interface has no means to. Two processes may obtain the
//     same certificate then. The second replaces the first in the storage, and both are valid.
//   - List is not a snapshot. Keys that are stored or deleted while it runs may be in the result or not.
//   - A Store without an answer that is repeated may come true once more after the key was deleted.
//   - Private keys are stored as they are, as in files. A user that may read the prefix in etcd has them.
//
// # Renewal of locks
//
// A session renews its lock as long as the process lives. So certmagic's RenewLockLease only has to report whether
// the lock is still held. If it was lost, RenewLockLease waits for it and takes it again. Otherwise certmagic would
// repeat the failing attempt for up to 30 days. The duration that certmagic asks for is longer than the TTL, which
// does no harm, since the session goes on renewing.
//
// [certmagic]: https://github.com/caddyserver/certmagic
package certmagiclock
