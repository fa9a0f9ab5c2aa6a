package gocronlock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	gocronlock "github.com/etcdlock/locks/adapters/gocron"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

var blackHoles = flag.Int("blackholes", 2, "how many times a leader is cut off")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func keep(t *testing.T, client *clientv3.Client, opts ...session.Option) *session.Keeper {
	k := session.Keep(client, opts...)
	t.Cleanup(func() { _ = k.Close(context.Background()) })
	return k
}

// schedule starts a scheduler with a job that begins after shift and comes every interval.
func schedule(t *testing.T, option gocron.SchedulerOption, shift, interval time.Duration, job func()) gocron.Scheduler {
	s, err := gocron.NewScheduler(option)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Shutdown() })
	start := gocron.WithStartAt(gocron.WithStartDateTime(time.Now().Add(interval + shift)))
	_, err = s.NewJob(gocron.DurationJob(interval), gocron.NewTask(job), gocron.WithName("report"), start)
	require.NoError(t, err)
	s.Start()
	return s
}

// ticks counts how often the scheduler wants to run a job.
type ticks struct {
	gocron.Locker
	n *atomic.Int64
}

func (t ticks) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	defer t.n.Add(1)
	return t.Locker.Lock(ctx, key)
}

// The tickers of three schedulers are apart, and the job takes no time. It runs once within the minimum hold.
func TestAJobRunsOnceWithinTheMinimumHold(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	var runs atomic.Int64
	var seen [3]atomic.Int64
	var all []gocron.Scheduler
	for i := range seen {
		locker := gocronlock.NewLocker(keep(t, cluster.Client(t)), gocronlock.WithMinHold(func(key string) time.Duration {
			require.Equal(t, "report", key)
			return time.Hour
		}))
		shift := time.Duration(i) * 30 * time.Millisecond
		option := gocron.WithDistributedLocker(ticks{locker, &seen[i]})
		all = append(all, schedule(t, option, shift, 100*time.Millisecond, func() { runs.Add(1) }))
	}
	for i := range seen {
		require.Eventually(t, func() bool { return seen[i].Load() >= 5 }, time.Minute, time.Millisecond)
	}
	for _, s := range all {
		require.NoError(t, s.Shutdown())
	}
	require.EqualValues(t, 1, runs.Load())
}

func TestARunIsLeftOutWhileAnotherSchedulerRunsTheJob(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	a, b := gocronlock.NewLocker(keep(t, cluster.Client(t))), gocronlock.NewLocker(keep(t, cluster.Client(t)))
	ctx, cancel := context.WithCancel(t.Context())
	run, err := a.Lock(ctx, "report")
	require.NoError(t, err)
	_, err = b.Lock(ctx, "report")
	require.ErrorIs(t, err, etcdlock.ErrBusy)
	other, err := b.Lock(ctx, "another")
	require.NoError(t, err)
	h, ok := a.Hold("report")
	require.True(t, ok)
	require.NoError(t, h.Err())
	_, ok = b.Hold("report")
	require.False(t, ok)
	cancel() // as the scheduler does when it is shut down
	require.NoError(t, run.Unlock(ctx))
	require.NoError(t, other.Unlock(ctx))
	_, ok = a.Hold("report")
	require.False(t, ok)
	run, err = b.Lock(t.Context(), "report")
	require.NoError(t, err)
	require.NoError(t, run.Unlock(t.Context()))
	require.NoError(t, run.Unlock(ended()), "nothing happens")
}

func TestALossOfARunIsReported(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	for name, lose := range map[string]func(t *testing.T, link *embedtest.Link, h *etcdlock.Hold){
		"black hole": func(t *testing.T, link *embedtest.Link, _ *etcdlock.Hold) { link.Blackhole() },
		"removed key": func(t *testing.T, _ *embedtest.Link, h *etcdlock.Hold) {
			require.NoError(t, etcdlock.ForceRelease(t.Context(), cluster.Client(t), h.Key(), h.Token()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			client, link := cluster.Link(t)
			lost := make(chan string, 1)
			locker := gocronlock.NewLocker(keep(t, client, session.WithTTL(2*time.Second)),
				gocronlock.WithLockOptions(etcdlock.WithNamespace(name)),
				gocronlock.WithOnLost(func(key string, err error) {
					lost <- fmt.Sprint(key, " ", errors.Is(err, etcdlock.ErrLost))
				}))
			run, err := locker.Lock(t.Context(), "report")
			require.NoError(t, err)
			h, _ := locker.Hold("report")
			lose(t, link, h)
			require.Equal(t, "report true", <-lost)
			require.ErrorIs(t, run.Unlock(t.Context()), etcdlock.ErrLost)
			link.Heal()
		})
	}
}

// One leader after the other is cut off. It starts no job beside the next one, which runs the jobs.
func TestALeaderInABlackHoleStartsNoJobBesideTheNext(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	var runs [2]atomic.Int64 // of each
	var beside atomic.Int64
	var electors [2]*gocronlock.Elector
	var links [2]*embedtest.Link
	for i := range electors {
		client, link := cluster.Link(t)
		links[i] = link
		electors[i] = gocronlock.NewElector(keep(t, client, session.WithTTL(2*time.Second)), "scheduler", fmt.Sprint(i))
		t.Cleanup(func() { _ = electors[i].Close(context.Background()) })
	}
	for i := range electors {
		schedule(t, gocron.WithDistributedElector(electors[i]), 0, 50*time.Millisecond, func() {
			runs[i].Add(1)
			if electors[0].IsLeader(t.Context()) == nil && electors[1].IsLeader(t.Context()) == nil {
				beside.Add(1)
			}
		})
	}
	runsJobs := func(i int) {
		t.Helper()
		from := runs[i].Load()
		require.Eventually(t, func() bool { return runs[i].Load() > from+3 }, time.Minute, time.Millisecond)
	}
	leader := 0
	require.Eventually(t, func() bool {
		if _, ok := electors[1].Term(); ok {
			leader = 1
		}
		_, ok := electors[leader].Term()
		return ok
	}, time.Minute, time.Millisecond)
	election := etcdlock.NewElection(keep(t, cluster.Client(t)), "scheduler")
	for range *blackHoles {
		runsJobs(leader)
		require.Eventually(t, func() bool {
			waiting, err := election.Candidates(t.Context())
			return err == nil && len(waiting) == 1
		}, time.Minute, time.Millisecond, "the other stands, again")
		cut := leader
		leader = 1 - cut
		links[cut].Blackhole()
		runsJobs(leader)
		before := runs[cut].Load()
		require.ErrorIs(t, electors[cut].IsLeader(t.Context()), gocronlock.ErrNotLeader)
		runsJobs(leader)
		require.Equal(t, before, runs[cut].Load(), "it starts no job any more")
		links[cut].Heal()
	}
	require.NoError(t, electors[leader].Close(t.Context()))
	runsJobs(1 - leader)
	require.Zero(t, beside.Load())
}

func TestAnElectorSaysWhyItDoesNotStand(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	k := keep(t, cluster.Client(t))
	e := gocronlock.NewElector(k, "", "me")
	require.Eventually(t, func() bool { return errors.Is(e.IsLeader(t.Context()), etcdlock.ErrInvalidName) }, time.Minute, time.Millisecond)
	require.NoError(t, e.Close(t.Context()))
}

func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
