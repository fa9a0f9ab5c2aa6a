// Package concurrency replaces [go.etcd.io/etcd/client/v3/concurrency]: it has the same names, signatures and errors,
// on this module's session and queues. A program changes one import and nothing else.
//
//	import "github.com/etcdlock/locks/concurrency"
//
// Programs that use it and programs that use etcd's package exclude each other and wait in one line. So a fleet can
// be changed one process at a time. New programs use package etcdlock, which has holds, fencing tokens and more kinds
// of locks.
//
// # What a program gains
//
//  1. Two Mutex values of one session exclude each other, and so do two goroutines that share a Locker. With etcd's
//     package both get in. The same holds for two Election values of one session: the second waits, where with etcd's
//     package it overwrites the value of the first.
//  2. Done of a session closes before the server can expire the lease, also if nothing comes back from etcd any more
//     (a black hole). With etcd's package it closes late, or not at all.
//  3. Unlock and Resign remove a key only if it is the caller's: the key and its create revision are compared.
//  4. A lost answer leaves nothing behind. A Lock or a Campaign whose context ends removes its key in the background
//     until that is confirmed.
//  5. Lock and Campaign return an error if the session ends while they wait. With etcd's package they wait on without a
//     key, and Campaign may even return nil.
//  6. Observe continues after a compaction and after a member is lost.
//  7. A release lets the next waiter in at once. With etcd's package the waiter often watches a revision that is past by
//     then, and etcd serves such a watch only every 100 ms. BenchmarkHandOver compares both.
//
// # What is different
//
// Lock and Unlock of a lost lock return [ErrSessionExpired]; with etcd's package Unlock returns nil, and Lock etcd's
// error that the lease is not found. Proclaim after a loss returns [ErrElectionNotLeader].
//
// If the context of a call ends, the call returns the context's error unchanged, never a gRPC status. Errors of etcd
// are those of package rpctypes.
//
// Header of a Mutex has only the revision: one at which the lock was held. It rises from owner to owner, also between programs of
// both packages, so it is a fencing token. Header of an Election has that of the leader's key, also after Proclaim.
//
// If the context of [WithContext] ends, the lease is left to expire, as with etcd's package.
//
// Names of prefixes follow the rules of etcdlock: not empty, at most 512 bytes, UTF-8. The value of a candidate is at
// most 1 MiB.
//
// WithLease and ResumeElection are missing: they take over the key of another process, which may still be alive.
package concurrency
