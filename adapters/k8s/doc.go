// Package k8slock is a lock for client-go's leader election, and so for a manager of controller-runtime. Candidates
// stand in a queue in etcd instead of polling a Lease of the Kubernetes API. The controller stays as it is.
//
//	lock := k8slock.New(sessions, "controller", podName)
//	config, err := lock.Config(ctx, leaderelection.LeaderCallbacks{OnStartedLeading: lead, OnStoppedLeading: stopped})
//	leaderelection.RunOrDie(ctx, config)
//	err = lock.Close(ctx) // then close the sessions
//
// It is for a program that has an etcd of its own, not that of the control plane. Other programs stay with
// client-go's Lease. docs/kubernetes.md compares both.
//
// # Guarantees
//
//  1. With the timings of [Lock.Timings] client-go stops leading before another candidate can lead. A key that is
//     removed by hand is the exception: the next candidate leads at once, and client-go goes on for up to
//     RetryPeriod and RenewDeadline.
//  2. The context of a function in [Lock.Wrap] ends with the term, with any timings.
//  3. Update returns nil for this candidate's identity only while its term goes on. Get returns this identity only
//     then, also if a predecessor or another process has the same one.
//  4. A term is given up only when client-go has stopped leading, and the functions of Wrap have returned. Update
//     without a holder, which is client-go's release, waits for that as long as its context allows.
//  5. When client-go has taken a term and it is lost, the Lock does not stand again before client-go has stopped.
//     client-go would take the next term for the same one.
//  6. Get, Update and the rest make no request, except that Update resigns. A candidate that waits or leads makes
//     two small reads about every 10 s, and its session a renewal every TTL/3, which is not written to disk.
//  7. A candidate leaves the line 30 s after the last call, unless client-go leads.
//
// # Not guaranteed
//
// If the term is lost, work that ignores its context goes on beside the next leader. A suspended process cannot
// notice a loss. A write that must never happen late has to be refused where it takes effect: [Lock.Term] has guarded
// transactions, [Lock.Token] the fencing token.
//
// client-go's default timings (15 s, 10 s, 2 s) are not safe with a session of 15 s. After a loss client-go goes on
// for up to 12 s, and the margin is 1.5 s. Two candidates lead for most of that time.
//
// RecordEvent makes no event in Kubernetes. Coordinated leader election is not supported: it needs the API server.
//
// # On a loss
//
// client-go stops, and a manager stops without grace. The process has to exit, as with client-go's own lock.
// OnNewLeader is called with an empty identity, since this process no longer knows the leader.
package k8slock
