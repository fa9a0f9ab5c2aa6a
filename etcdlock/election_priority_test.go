package etcdlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

func TestTheHighestPriorityLeadsNextAndThoseOfOneInOrder(t *testing.T) {
	c := newContest(t)
	term := c.lead("low leader")
	for _, one := range []struct {
		value    string
		priority int
	}{{"low", 0}, {"middle 1", 5}, {"middle 2", 5}, {"high", 300}, {"middle 3", 5}} {
		c.stand(one.value, etcdlock.WithPriority(one.priority))
	}
	want := "high"
	for len(c.standing) > 0 {
		for value := range c.standing {
			c.requireWaiting(value)
		}
		resign(t, term)
		term = c.next(want)
		awaitTickets(t, c.client, len(c.standing)+1)
		// A candidate that is passed over joins again, at the end. After that, the candidates of one priority
		// lead in the order in which they joined again.
		for _, value := range c.line()[1:] {
			if want = value; want != "low" {
				break // any other is higher, and these are all the same
			}
		}
	}
	require.Equal(t, []string{"low"}, c.line())
	resign(t, term)
}

// passing has "low" own the term, and pass it on to "high", which it does not get to do until the fault is healed.
func passing(t *testing.T, c *contest, high *etcdlock.Election) *embedtest.Fault {
	t.Helper()
	term := c.lead("a")
	c.stand("low")
	c.standOn(high, "high")
	held := c.cluster.Hold("Txn", embedtest.Once(), embedtest.When(passes))
	resign(t, term)
	await(t, "the transaction", held.Bitten())
	return held
}

// requireHighThenLow is how it goes on if nothing has come in between.
func requireHighThenLow(t *testing.T, c *contest) {
	t.Helper()
	term := c.next("high")
	c.awaitLine("high", "low")
	c.requireWaiting("low")
	resign(t, term)
	resign(t, c.next("low"))
	awaitTickets(t, c.client, 0)
}

// While the lower one reads the candidates behind it, it is first in etcd, but its Campaign has not returned.
func TestALowerPriorityPassesTheTermOnBeforeItLeads(t *testing.T) {
	c := newContest(t)
	held := passing(t, c, c.candidate(etcdlock.WithPriority(1)))
	require.Equal(t, []string{"low", "high"}, c.line())
	c.requireWaiting("low", "high")
	held.Heal()
	requireHighThenLow(t, c)
}

// A higher one that is gone when the term is passed on to it must not leave nobody in line.
func TestATermThatIsPassedOnToNobodyIsKept(t *testing.T) {
	c := newContest(t)
	dying := newSession(t, c.client)
	held := passing(t, c, etcdlock.NewElection(dying, "controller", etcdlock.WithPriority(1)))
	revoke(t, c.client, dying)
	held.Heal()
	require.NoError(t, c.next("low").Err())
	require.Equal(t, []string{"low"}, c.line())
}

// It is in line again under the same name, which is confirmed to be free.
func TestACandidateThatIsRemovedBeforeItPassesTheTermOnFreesItsName(t *testing.T) {
	c := newContest(t)
	held := passing(t, c, c.candidate(etcdlock.WithPriority(1)))
	key := c.keyOf("low")
	remove(t, c.client, key)
	held.Heal()
	c.awaitLine("high", "low")
	require.Equal(t, key, c.keyOf("low"))
	requireHighThenLow(t, c)
}

// A request to join that was not answered arrives when the candidate has been in line, and been removed.
func TestALateRequestOfACandidateThatWasRemovedBlocksNobody(t *testing.T) {
	c := newContest(t)
	high, term := c.candidate(etcdlock.WithPriority(1)), c.lead("a")
	late := c.cluster.Hold("Txn", embedtest.Once(), embedtest.When(creates))
	c.stand("low") // by its second attempt
	c.standOn(high, "high")
	held := c.cluster.Hold("Txn", embedtest.Once(), embedtest.When(passes))
	resign(t, term)
	await(t, "the transaction", held.Bitten())
	remove(t, c.client, c.keyOf("low"))
	held.Heal()
	c.awaitLine("high", "low")
	entries := c.cluster.AppliedIndex()
	late.Heal()
	require.Eventually(t, func() bool { return c.cluster.AppliedIndex() > entries }, patience, waitABit)
	requireHighThenLow(t, c)
}

func TestPrioritiesDoNotPassOverOtherPrograms(t *testing.T) {
	c := newContest(t)
	term := c.lead("a")
	c.stand("low")
	c.stand("middle", etcdlock.WithPriority(1))
	led, s := c.standForeign("foreign")
	c.stand("high", etcdlock.WithPriority(2))

	resign(t, term)
	term = c.next("middle") // the higher of those before the other program
	c.awaitLine("middle", "foreign", "high", "low")
	resign(t, term)
	require.NoError(t, await(t, "the other program", led))
	c.requireWaiting("high")
	require.NoError(t, s.Close())
	term = c.next("high")
	c.requireWaiting("low")
	resign(t, term)
	resign(t, c.next("low"))
}

// More candidates are in between than one transaction can pass over.
func TestALowerCandidateLeadsIfTheHigherIsTooFarBehind(t *testing.T) {
	c := newContest(t)
	term := c.lead("a")
	c.stand("low")
	c.stand("high", etcdlock.WithPriority(1))
	fault := c.cluster.Refuse("Txn", rpctypes.ErrGRPCTooManyOps, embedtest.When(passes))
	resign(t, term)
	term = c.next("low")
	require.NoError(t, fault.Wait(within(t)))
	resign(t, term)
	resign(t, c.next("high"))
}

// Nobody would lead until its lease is over.
func TestACandidateThatIsCutOffIsNotPreferred(t *testing.T) {
	inVirtualContest(t, func(t *testing.T, c *contest) {
		term := c.lead("a")
		c.stand("low")
		c.standCutOff("high")
		resign(t, term)
		term = c.next("low")
		require.Equal(t, []string{"low", "high"}, c.line(), "before the other's lease is over")
		resign(t, term)
	})
}
