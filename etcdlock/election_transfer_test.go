package etcdlock_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

func TestATransferMakesTheNamedCandidateLeadNextAndNobodyElse(t *testing.T) {
	c := newContest(t)
	observed := observing(within(t), c.candidate(), "end")
	require.True(t, await(t, "the first state", observed.first).Vacant())

	term := c.lead("a")
	for _, value := range []string{"b", "c", "d", "e"} {
		c.stand(value)
	}
	require.NoError(t, term.Transfer(within(t), "d"))
	require.ErrorIs(t, term.Err(), etcdlock.ErrUnlocked)
	require.ErrorIs(t, context.Cause(term.Context()), etcdlock.ErrUnlocked)
	next := c.next("d")
	require.Greater(t, next.Token(), term.Token())
	awaitTickets(t, c.client, 4)
	require.Equal(t, []string{"d", "e"}, c.line()[:2])

	c.requireWaiting("b", "c")
	resign(t, next)
	resign(t, c.next("e"))
	for range 2 { // "b" and "c", in either order
		resign(t, c.next(c.line()[0]))
	}
	c.lead("end")
	require.Equal(t, []string{"", "a", "d", "e"}, values(await(t, "the observer", observed.all))[:4], "no revision in between")
}

// Priorities are for a term that nobody was chosen for.
func TestATransferGoesToTheNamedCandidateWhateverThePriorities(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][2]string{"ahead of the higher one": {"low", "high"}, "behind it": {"high", "low"}} {
		t.Run(name, func(t *testing.T) {
			c := newContest(t)
			priorities := map[string]int{"low": 1, "high": 9}
			term := c.lead("a")
			for _, value := range order {
				c.stand(value, etcdlock.WithPriority(priorities[value]))
			}
			var reads atomic.Int64 // of the whole line: the transfer's, then that of the chosen one
			looking := c.cluster.Hold("Range", embedtest.When(func(message any) bool {
				r := message.(*etcdserverpb.RangeRequest)
				return string(r.Key) == controllerPrefix && r.Limit == 0 && r.SortOrder == etcdserverpb.RangeRequest_NONE && reads.Add(1) > 1
			}))
			require.NoError(t, term.Transfer(within(t), "low"))
			require.NoError(t, looking.Wait(within(t)))
			c.awaitLine("low", "high")
			c.requireWaiting("high")
			looking.Heal()
			low := c.next("low")
			c.awaitLine("low", "high")
			require.NoError(t, low.Proclaim(within(t), "still low"))
			c.requireWaiting("high")
			resign(t, low)
			resign(t, c.next("high"))
		})
	}
}

// Nobody would lead until its lease is over. A process that was started again has the name of the one before.
func TestATransferDoesNotGoToACandidateThatIsCutOff(t *testing.T) {
	inVirtualContest(t, func(t *testing.T, c *contest) {
		term := c.lead("a")
		c.standCutOff("b")
		err := term.Transfer(within(t), "b")
		require.ErrorIs(t, err, etcdlock.ErrNotWaiting)
		require.ErrorContains(t, err, "not been renewed")
		require.NoError(t, term.Err())

		c.stand("b")
		require.NoError(t, term.Transfer(within(t), "b"))
		resign(t, c.next("b"))
	})
}

// duelOf has a leader "a", and "b" in line.
func duelOf(t *testing.T) (c *contest, term *etcdlock.Term) {
	t.Helper()
	c = newContest(t)
	term = c.lead("a")
	c.stand("b")
	return c, term
}

// transferring passes a term on in the background.
func transferring(t *testing.T, term *etcdlock.Term, to string) <-chan error {
	ctx := within(t)
	return background(func() error { return term.Transfer(ctx, to) })
}

// unanswered has a transfer to b take effect. Its answer does not come before the fault is healed: then the client
// hears that there is none, and asks again.
func (c *contest) unanswered(term *etcdlock.Term) (answer *embedtest.Fault, transferred <-chan error) {
	c.t.Helper()
	answer = c.cluster.LoseReply("Txn", embedtest.Once(), embedtest.When(deletes))
	transferred = transferring(c.t, term, "b")
	require.NoError(c.t, answer.Wait(within(c.t)))
	return answer, transferred
}

// If the name of the old key became free twice, two candidates would share one key, and both lead.
func TestResigningBesideATransferIsNoLossAndFreesTheKeyOnce(t *testing.T) {
	t.Parallel()
	for name, ctx := range map[string]context.Context{"with time": within(t), "without": cancelled()} {
		t.Run(name, func(t *testing.T) {
			c := newContest(t)
			e := c.candidate()
			term := lead(t, e, "a")
			c.stand("b")
			answer, transferred := c.unanswered(term)
			resigned := background(func() error { return term.Resign(ctx) })
			await(t, "the end of the term", term.Done()) // when the resignation has begun
			c.standOn(e, "c")
			if ctx.Err() != nil { // it cannot know how the term ended
				require.NotErrorIs(t, await(t, "the resignation", resigned), etcdlock.ErrLost)
			}
			answer.Heal()
			require.NoError(t, await(t, "the transfer", transferred))
			if ctx.Err() == nil {
				require.NoError(t, await(t, "the resignation", resigned))
			}
			require.ErrorIs(t, term.Err(), etcdlock.ErrUnlocked)
			c.standOn(e, "d")
			require.Equal(t, []string{"b", "c", "d"}, c.line())
		})
	}
}

// The transfer has taken effect, and its caller gives up before that is known.
func TestResigningBesideATransferOfUnknownOutcomeIsNoLoss(t *testing.T) {
	inVirtualContest(t, func(t *testing.T, c *contest) {
		term := c.lead("a")
		c.stand("b")
		lost := c.cluster.LoseReply("Txn", embedtest.Once(), embedtest.When(passes))
		ctx, cancel := context.WithCancel(within(t))
		transferred := background(func() error { return term.Transfer(ctx, "b") })
		require.NoError(t, lost.Wait(within(t)))
		again := c.cluster.Hold("Txn", embedtest.When(passes))
		require.NoError(t, again.Wait(within(t)))
		resigned := background(func() error { return term.Resign(within(t)) })
		await(t, "the end of the term", term.Done())
		cancel()
		require.ErrorIs(t, await(t, "the transfer", transferred), context.Canceled)
		require.NoError(t, await(t, "the resignation", resigned))
		again.Heal()
		resign(t, c.next("b"))
	})
}

// The second one waits for the first, and for no longer than its context lasts.
func TestTransfersAtATimeTakeTurns(t *testing.T) {
	c, term := duelOf(t)
	c.stand("c")
	reading := c.cluster.Hold("Range")
	first := transferring(t, term, "nobody")
	require.NoError(t, reading.Wait(within(t)))
	before := c.cluster.Calls("Range")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, term.Transfer(ctx, "c"), context.DeadlineExceeded)
	require.Equal(t, before, c.cluster.Calls("Range"), "it has not begun")
	second := transferring(t, term, "c")
	reading.Heal()
	require.ErrorIs(t, await(t, "the first", first), etcdlock.ErrNotWaiting)
	require.NoError(t, await(t, "the second", second))
	require.ErrorIs(t, term.Transfer(within(t), "b"), etcdlock.ErrUnlocked)
	c.awaitLine("c", "b")
}

func TestTheFirstCandidateOfThatNameIsChosen(t *testing.T) {
	c, term := duelOf(t)
	first, second := c.stand("c"), c.stand("c")
	require.NoError(t, term.Transfer(within(t), "c"))
	awaitTerm(t, "the first of the two", first)
	requireWaiting(t, second)
}

func TestATransferThatFailsLeavesTheTermAsItIs(t *testing.T) {
	c, term := duelOf(t)
	requireStays := func() {
		t.Helper()
		require.NoError(t, term.Err())
		c.requireWaiting("b")
		require.Equal(t, []string{"a", "b"}, c.line()[:2])
	}
	err := term.Transfer(within(t), "c")
	require.ErrorIs(t, err, etcdlock.ErrNotWaiting)
	require.ErrorContains(t, err, `transfer "controller"`)
	require.ErrorIs(t, term.Transfer(within(t), "a"), etcdlock.ErrNotWaiting, "the leader does not wait")
	requireStays()
	require.ErrorIs(t, term.Transfer(cancelled(), "b"), context.Canceled, "it is not sent")
	requireStays()

	// It takes a write if the other one would be preferred, and etcd refuses that without space.
	c.stand("c", etcdlock.WithPriority(1))
	disarm := fillUp(t, c.cluster)
	require.ErrorIs(t, term.Transfer(within(t), "b"), rpctypes.ErrNoSpace)
	requireStays()
	disarm()
	require.NoError(t, term.Transfer(within(t), "b"))
	resign(t, c.next("b"))
}

// The transfer took effect, and has not heard of it yet.
func TestACallThatFindsTheTermPassedOnReportsNoLoss(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(*testing.T, *etcdlock.Term) error{
		"txn":      func(t *testing.T, term *etcdlock.Term) error { return commit(within(t), term.Hold) },
		"proclaim": func(t *testing.T, term *etcdlock.Term) error { return term.Proclaim(within(t), "late") },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualContest(t, func(t *testing.T, c *contest) {
				for range 10 { // the call may learn of the end before the transfer does
					term := c.lead("a")
					c.stand("b")
					_, transferred := c.unanswered(term)
					err := look(t, term)
					require.ErrorIs(t, err, etcdlock.ErrUnlocked)
					require.NotErrorIs(t, err, etcdlock.ErrLost)
					require.NoError(t, await(t, "the transfer", transferred))
					require.ErrorIs(t, term.Err(), etcdlock.ErrUnlocked)
					resign(t, c.next("b"))
				}
			})
		})
	}
}

// Until the transfer is over nobody but it decides how the term has ended. It finds out the loss, or fails when the
// watch has reported that.
func TestATermThatIsLostDuringATransferIsLost(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{"it finds out": etcdlock.ErrLost, "it fails": context.Canceled} {
		t.Run(name, func(t *testing.T) {
			c := newContest(t)
			before := c.cluster.Calls("Watch")
			term := c.lead("a")
			awaitWatch(t, c.cluster, before)
			c.stand("b")
			reading := c.cluster.Hold("Range", embedtest.Once())
			ctx, cancel := context.WithCancel(within(t))
			transferred := background(func() error { return term.Transfer(ctx, "b") })
			require.NoError(t, reading.Wait(within(t)))
			remove(t, c.client, term.Key())
			c.next("b")
			require.ErrorIs(t, term.Proclaim(within(t), "late"), etcdlock.ErrUnlocked)
			if name == "it fails" {
				cancel()
			} else {
				reading.Heal()
			}
			require.ErrorIs(t, await(t, "the transfer", transferred), want)
			await(t, "the loss", term.Done())
			require.ErrorIs(t, term.Err(), etcdlock.ErrLost)
			cancel()
		})
	}
}

func TestALostTermCannotBeTransferred(t *testing.T) {
	c, term := duelOf(t)
	c.stand("c")
	remove(t, c.client, term.Key())
	require.NoError(t, c.next("b").Err())
	for range 2 {
		require.ErrorIs(t, term.Transfer(within(t), "c"), etcdlock.ErrLost)
		require.ErrorIs(t, term.Err(), etcdlock.ErrLost)
	}
	c.requireWaiting("c")
	require.Equal(t, []string{"b", "c"}, c.line())
}

// No call of a hold outlasts its session.
func TestATransferEndsWithTheSessionWhenEtcdIsSilent(t *testing.T) {
	c := newContest(t)
	client, link := c.cluster.Link(t)
	term := lead(t, etcdlock.NewElection(newSession(t, client, session.WithTTL(secondTTL)), "controller"), "a")
	c.stand("b")
	link.Blackhole()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	transferred := background(func() error { return term.Transfer(ctx, "b") })
	require.ErrorIs(t, await(t, "the transfer", transferred), etcdlock.ErrLost)
	require.ErrorIs(t, term.Err(), etcdlock.ErrLost)
	c.next("b")
}

// secondTTL is for sessions that are to be lost during the test.
const secondTTL = time.Second

// A term that is over a second old watches its key, whose end must not count as a loss.
func TestATransferIsNoLoss(t *testing.T) {
	inVirtualContest(t, func(t *testing.T, c *contest) {
		released := make(chan etcdlock.Released, 2)
		hooks := &etcdlock.Hooks{
			Lost:     func(e etcdlock.Lost) { t.Errorf("the term was lost: %v", e.Err) },
			Released: func(e etcdlock.Released) { released <- e },
		}
		for range 10 { // the watch may tell of the end before the transfer does
			before := c.cluster.Calls("Watch")
			term := c.lead("a", etcdlock.WithHooks(hooks))
			awaitWatch(t, c.cluster, before)
			c.stand("b")
			answer, transferred := c.unanswered(term)
			next := c.next("b") // the answer comes long after the event
			answer.Heal()
			require.NoError(t, await(t, "the transfer", transferred))
			require.ErrorIs(t, term.Err(), etcdlock.ErrUnlocked)
			require.NoError(t, await(t, "the release", released).Err)
			require.NoError(t, term.Resign(within(t)), "there is nothing left to resign from")
			require.Empty(t, released)
			require.Equal(t, []string{"b"}, c.line())
			resign(t, next)
		}
	})
}

// A transfer whose outcome is unknown is finished in the background.
func TestATransferWithoutAnAnswerEndsTheTerm(t *testing.T) {
	c := newContest(t)
	s := newSession(t, c.client)
	term := lead(t, etcdlock.NewElection(s, "controller"), "a")
	c.stand("b")
	silence := c.cluster.LoseRequest("Txn", embedtest.When(deletes))
	ctx, cancel := context.WithCancel(within(t))
	transferred := background(func() error { return term.Transfer(ctx, "b") })
	await(t, "the request", silence.Bitten())
	cancel()
	require.ErrorIs(t, await(t, "the transfer", transferred), context.Canceled)
	require.ErrorIs(t, term.Err(), etcdlock.ErrUnlocked)
	silence.Heal()
	c.awaitLine("b")
	require.NoError(t, s.Err())
}
