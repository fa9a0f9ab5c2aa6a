package k8slock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection"

	k8slock "github.com/etcdlock/locks/adapters/k8s"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// world is a cluster in virtual time.
type world struct {
	t        *testing.T
	cluster  *embedtest.Cluster
	began    time.Time
	election *etcdlock.Election
}

func inVirtualTime(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, began: time.Now(), cluster: embedtest.Start(t, embedtest.WithVirtualTime())}
		w.election = etcdlock.NewElection(session.Keep(w.cluster.Client(t)), name) // without a session
		test(t, w)
	})
}

func (w *world) candidate(identity string) *k8slock.Lock {
	clock := session.WithClock(func() time.Duration { return time.Since(w.began) })
	l := k8slock.New(keep(w.t, w.cluster.Client(w.t), clock), name, identity)
	w.t.Cleanup(func() { finish(l) })
	return l
}

// leader returns the zero Leader if there is none.
func (w *world) leader() etcdlock.Leader {
	leader, err := w.election.Leader(w.t.Context())
	if err != nil {
		require.ErrorIs(w.t, err, etcdlock.ErrNoLeader)
	}
	return leader
}

func TestACandidateThatIsNotCalledLeavesTheLine(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		l := w.candidate("a")
		require.Equal(t, answer{}, <-get(t.Context(), l))
		time.Sleep(29 * time.Second)
		require.Equal(t, "a", w.leader().Value)
		time.Sleep(2 * time.Second)
		require.True(t, w.leader().Vacant(), "client-go has not taken the term")

		lead(t, l)
		l.RecordEvent("stopped leading") // and does not release
		time.Sleep(29 * time.Second)
		require.Equal(t, "a", w.leader().Value)
		time.Sleep(2 * time.Second)
		require.True(t, w.leader().Vacant())
	})
}

func TestACandidateThatLeadsOrIsAskedForStaysInLine(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		lead(t, w.candidate("a"))
		leader := w.leader()
		ctx, stop := context.WithCancel(t.Context())
		standby := w.candidate("b")
		require.Equal(t, answer{holder: "a"}, <-get(ctx, standby))
		news := get(ctx, standby)
		inLine(t, w.cluster.Client(t), 1)
		place, err := w.election.Candidates(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.Equal(t, leader, w.leader(), "client-go's calls may be far apart")
		later, err := w.election.Candidates(t.Context())
		require.NoError(t, err)
		require.Equal(t, place, later)
		stop()
		require.ErrorIs(t, (<-news).err, context.Canceled)
		time.Sleep(31 * time.Second)
		inLine(t, w.cluster.Client(t), 0)
	})
}

// A process that ends after a loss would lead for a moment.
func TestACandidateThatHasLostItsTermStandsAgainOnlyWhenItIsAsked(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		l := w.candidate("a")
		lead(t, l)
		leader := w.leader()
		require.NoError(t, etcdlock.ForceRelease(t.Context(), w.cluster.Client(t), leader.Key, leader.Token))
		time.Sleep(10 * time.Second)
		require.True(t, w.leader().Vacant(), "client-go has to stop first")
		l.RecordEvent("stopped leading")
		time.Sleep(10 * time.Second)
		require.True(t, w.leader().Vacant())
		lead(t, l)
		require.Greater(t, w.leader().Token, leader.Token)
	})
}

// client-go without ReleaseOnCancel stops, and is started again in the same process.
func TestATermThatWasNotReleasedIsTakenUpAgainWhenTheWorkIsOver(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		l := w.candidate("a")
		lead(t, l)
		token := l.Token()
		finished := make(chan struct{})
		go l.Wrap(func(context.Context) { <-finished })(t.Context())
		synctest.Wait()
		l.RecordEvent("stopped leading")
		news := get(t.Context(), l)
		time.Sleep(time.Second)
		require.Empty(t, news)
		require.True(t, apierrors.IsConflict(l.Update(t.Context(), record("a"))))
		close(finished)
		require.Equal(t, answer{}, <-news)
		require.NoError(t, l.Update(t.Context(), record("a")))
		require.Equal(t, token, l.Token())
	})
}

// client-go renews about 3,000 times meanwhile. Only the candidates' own looks, two about every 10 s each, reach
// etcd.
func TestLeadingAndStandingByWriteNothingAndReadLittle(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, w *world) {
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		leading := make(chan string, 2)
		for _, identity := range []string{"a", "b"} {
			l := w.candidate(identity)
			config, err := l.Config(ctx, leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) {
					leading <- identity
					<-ctx.Done()
				},
				OnStoppedLeading: func() {},
			})
			require.NoError(t, err)
			running.Go(func() { leaderelection.RunOrDie(ctx, config) })
		}
		<-leading
		time.Sleep(20 * time.Second)
		requests := func() int64 { return w.cluster.Calls("Range") + w.cluster.Calls("Txn") }
		before, entries := requests(), w.cluster.AppliedIndex()
		time.Sleep(10 * time.Minute)
		require.Equal(t, entries, w.cluster.AppliedIndex(), "raft entries")
		require.Less(t, requests()-before, int64(2*2*600/7))
		stop()
		running.Wait()
	})
}
