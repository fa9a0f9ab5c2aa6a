// Package tusdlock gives a fleet of [tusd] servers one lock for each upload, in etcd. A client may resume an upload at any of
// them.
//
//	tusdlock.New(sessions).UseIn(composer)
//
// # Guarantees
//
//  1. One request at a time works on an upload, on all servers together.
//  2. A request that wants the lock of an upload makes the one that has it stop, within milliseconds: a client that has lost
//     its connection need not wait until the old server notices. tusd saves what it has received.
//  3. The lock of a crashed server is free after the TTL of its session, 15 s by default.
//  4. A request whose lock is lost is stopped at the session's deadline, before another server can have the lock. If the
//     key was removed by hand, it is stopped within milliseconds once it has lasted for a second.
//
// # Not guaranteed
//
//   - A request that is stopped may take until tusd's GracefulRequestCompletionTimeout, 10 s by default, to save what it
//     has received. Sessions with a [session.WithMargin] of that much, and more than twice the TTL, keep the lock for
//     that long after a loss.
//   - A server that was suspended for longer than its TTL may store what it had received before it notices the loss.
//   - tusd ignores the request to stop while it has not begun to read the request's body. The waiting request fails with
//     ERR_LOCK_TIMEOUT then if the body takes longer than AcquireLockTimeout, 20 s by default. A TTL above that makes
//     clients fail once more often after a crash.
//
// # Cost
//
// Two round trips for each request to tusd, and a watch while it lasts.
//
// [tusd]: https://github.com/tus/tusd
package tusdlock
