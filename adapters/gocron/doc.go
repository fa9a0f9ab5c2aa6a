// Package gocronlock makes each job of a fleet of [gocron] schedulers run once. A [Locker] chooses a scheduler for
// each run. An [Elector] chooses one scheduler that runs all jobs.
//
//	locker := gocronlock.NewLocker(sessions, gocronlock.WithMinHold(func(string) time.Duration { return 30 * time.Second }))
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// # Names
//
// The lock of a job has the job's name, which is that of its function by default. Two jobs of one function exclude
// each other then, and a job whose function was renamed runs twice during a rollout. So give each job a name:
// gocron.WithName.
//
// # Minimum hold
//
// A job that is over before the next scheduler's clock reaches the same tick leaves the lock free, and the job runs
// again. [WithMinHold] keeps the lock taken: longer than the clocks and tickers of the schedulers are apart, and
// shorter than the interval of the job less that.
//
// # On a loss
//
// gocron has no way to stop a job that runs. If the lock is lost while a job runs, another scheduler may run it at
// the same time. [WithOnLost] reports it, and [Locker.Hold] gives the hold to the job, to fence what it writes. An
// Elector that loses its term starts no more jobs, from the session's deadline at the latest.
//
// [gocron]: https://github.com/go-co-op/gocron
package gocronlock
