package etcdlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

func TestTheHighestPriorityLeadsNextAndThoseOfOneInOrder(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	term := lead(t, candidate(t, cluster), "low leader")
	waiting := map[string]<-chan campaigned{}
	for i, c := range []struct {
		value    string
		priority int
	}{{"low", 0}, {"middle 1", 5}, {"middle 2", 5}, {"high", 300}, {"middle 3", 5}} {
		waiting[c.value] = inLine(t, client, candidate(t, cluster, etcdlock.WithPriority(c.priority)), c.value, i+2)
	}
	// Who is passed over is in line again, at the end: after that, those of one priority are
	// in the order in which they came again.
	for _, next := range []string{"high"} {
		for _, c := range waiting {
			stillWaiting(t, c)
		}
		resign(t, term)
		term = awaitTerm(t, next, waiting[next])
		delete(waiting, next)
		awaitTickets(t, client, len(waiting)+1)
	}
	for len(waiting) > 0 {
		behind := valuesInLine(t, client)[1:]
		want := behind[0]
		for _, value := range behind {
			if want == "low" {
				want = value // any other is higher, and these are all the same
			}
		}
		resign(t, term)
		term = awaitTerm(t, want, waiting[want])
		delete(waiting, want)
		awaitTickets(t, client, len(waiting)+1)
	}
	require.Equal(t, []string{"low"}, valuesInLine(t, client))
	resign(t, term)
}

func TestAHigherPriorityDoesNotInterruptATerm(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	term := lead(t, candidate(t, cluster), "low")
	high := inLine(t, client, candidate(t, cluster, etcdlock.WithPriority(1)), "high", 2)
	require.NoError(t, term.Proclaim(within(t), "still low"))
	stillWaiting(t, high)
	require.NoError(t, term.Err())
	resign(t, term)
	resign(t, awaitTerm(t, "the higher one", high))
}

// While the lower one asks who is behind it, it is first in etcd, but its Campaign has not returned.
func TestALowerPriorityPassesTheTermOnBeforeItLeads(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	term := lead(t, candidate(t, cluster), "a")
	low := inLine(t, client, candidate(t, cluster), "low", 2)
	high := inLine(t, client, candidate(t, cluster, etcdlock.WithPriority(1)), "high", 3)
	passing := cluster.Hold("Txn", embedtest.Once(), embedtest.When(passes))
	resign(t, term)
	require.NoError(t, passing.Wait(within(t)))
	require.Equal(t, []string{"low", "high"}, valuesInLine(t, client))
	stillWaiting(t, low)
	stillWaiting(t, high)
	passing.Heal()
	term = awaitTerm(t, "the higher one", high)
	awaitLine(t, client, "high", "low")
	stillWaiting(t, low)
	resign(t, term)
	resign(t, awaitTerm(t, "the lower one", low))
}

// A higher one that is gone when the term is passed on to it must not leave nobody in line.
func TestATermThatIsPassedOnToNobodyIsKept(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	term := lead(t, candidate(t, cluster), "a")
	low := inLine(t, client, candidate(t, cluster), "low", 2)
	dying := newSession(t, client)
	inLine(t, client, etcdlock.NewElection(dying, "controller", etcdlock.WithPriority(1)), "high", 3)
	passing := cluster.Hold("Txn", embedtest.Once(), embedtest.When(passes))
	resign(t, term)
	require.NoError(t, passing.Wait(within(t)))
	revoke(t, client, dying)
	passing.Heal()
	before := term.Token()
	term = awaitTerm(t, "the lower one", low)
	require.Greater(t, term.Token(), before)
	require.Equal(t, []string{"low"}, valuesInLine(t, client))
}

// It is in line again under the same name, which is confirmed to be free.
func TestACandidateThatIsRemovedBeforeItPassesTheTermOnFreesItsName(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	term := lead(t, candidate(t, cluster), "a")
	low := inLine(t, client, candidate(t, cluster), "low", 2)
	high := inLine(t, client, candidate(t, cluster, etcdlock.WithPriority(1)), "high", 3)
	key := keyOf(t, client, "low")
	passing := cluster.Hold("Txn", embedtest.Once(), embedtest.When(passes))
	resign(t, term)
	require.NoError(t, passing.Wait(within(t)))
	remove(t, client, key)
	passing.Heal()
	term = awaitTerm(t, "the higher one", high)
	awaitLine(t, client, "high", "low")
	require.Equal(t, key, keyOf(t, client, "low"))
	resign(t, term)
	resign(t, awaitTerm(t, "the lower one", low))
}

// A request to join that was not answered arrives when the candidate has been in line, and been removed.
func TestALateRequestOfACandidateThatWasRemovedBlocksNobody(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	term := lead(t, candidate(t, cluster), "a")
	late := cluster.Hold("Txn", embedtest.Once(), embedtest.When(creates))
	low := inLine(t, client, candidate(t, cluster), "low", 2) // by its second attempt
	high := inLine(t, client, candidate(t, cluster, etcdlock.WithPriority(1)), "high", 3)
	passing := cluster.Hold("Txn", embedtest.Once(), embedtest.When(passes))
	resign(t, term)
	require.NoError(t, passing.Wait(within(t)))
	remove(t, client, keyOf(t, client, "low"))
	passing.Heal()
	term = awaitTerm(t, "the higher one", high)
	awaitLine(t, client, "high", "low")
	entries := cluster.AppliedIndex()
	late.Heal()
	require.Eventually(t, func() bool { return cluster.AppliedIndex() > entries }, patience, time.Millisecond)
	resign(t, term)
	resign(t, awaitTerm(t, "the lower one", low))
	awaitTickets(t, client, 0)
}

func TestPrioritiesDoNotPassOverOtherPrograms(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	term := lead(t, candidate(t, cluster), "a")
	low := inLine(t, client, candidate(t, cluster), "low", 2)
	middle := inLine(t, client, candidate(t, cluster, etcdlock.WithPriority(1)), "middle", 3)
	s, err := concurrency.NewSession(client)
	require.NoError(t, err)
	led := make(chan error, 1)
	ctx := within(t)
	go func() { led <- concurrency.NewElection(s, "etcdlock/controller").Campaign(ctx, "foreign") }()
	awaitTickets(t, client, 4)
	high := inLine(t, client, candidate(t, cluster, etcdlock.WithPriority(2)), "high", 5)

	resign(t, term)
	term = awaitTerm(t, "the higher of those before the other program", middle)
	awaitLine(t, client, "middle", "foreign", "high", "low")
	resign(t, term)
	require.NoError(t, await(t, "the other program", led))
	stillWaiting(t, high)
	require.NoError(t, s.Close())
	term = awaitTerm(t, "the highest", high)
	stillWaiting(t, low)
	resign(t, term)
	resign(t, awaitTerm(t, "the lowest", low))
}

func TestALowerCandidateLeadsIfTheHigherIsBehindAnotherProgram(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	term := lead(t, candidate(t, cluster), "a")
	low := inLine(t, client, candidate(t, cluster), "low", 2)
	m := etcdlock.NewMutex(newSession(t, client), "controller")
	locked := locking(within(t), m)
	awaitTickets(t, client, 3)
	high := inLine(t, client, candidate(t, cluster, etcdlock.WithPriority(1)), "high", 4)
	resign(t, term)
	term = awaitTerm(t, "the lower one", low)
	resign(t, term)
	r := await(t, "the mutex", locked)
	require.NoError(t, r.err)
	unlock(t, r.hold)
	resign(t, awaitTerm(t, "the higher one", high))
}

// More candidates are in between than one transaction can pass over.
func TestALowerCandidateLeadsIfTheHigherIsTooFarBehind(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	term := lead(t, candidate(t, cluster), "a")
	low := inLine(t, client, candidate(t, cluster), "low", 2)
	high := inLine(t, client, candidate(t, cluster, etcdlock.WithPriority(1)), "high", 3)
	fault := cluster.Refuse("Txn", rpctypes.ErrGRPCTooManyOps, embedtest.When(passes))
	resign(t, term)
	term = awaitTerm(t, "the lower one", low)
	require.NoError(t, fault.Wait(within(t)))
	resign(t, term)
	resign(t, awaitTerm(t, "the higher one", high))
}

func TestANegativePriorityPanics(t *testing.T) {
	t.Parallel()
	require.Panics(t, func() { etcdlock.WithPriority(-1) })
	cluster := embedtest.Start(t)
	require.Panics(t, func() { etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders", etcdlock.WithPriority(1)) })
}
