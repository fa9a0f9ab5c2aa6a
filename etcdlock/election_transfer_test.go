package etcdlock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

func TestATransferMakesTheNamedCandidateLeadNextAndNobodyElse(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	truth := watchHistory(t, client)
	observed := observing(within(t), candidate(t, cluster), "end")
	require.True(t, await(t, "the first state", observed.first).Vacant())

	term := lead(t, candidate(t, cluster), "a")
	passedOver := inLine(t, client, candidate(t, cluster), "b", 2)
	alsoPassedOver := inLine(t, client, candidate(t, cluster), "c", 3)
	chosen := inLine(t, client, candidate(t, cluster), "d", 4)
	unconcerned := inLine(t, client, candidate(t, cluster), "e", 5)
	require.NoError(t, term.Transfer(within(t), "d"))
	require.ErrorIs(t, term.Err(), etcdlock.ErrUnlocked)
	require.ErrorIs(t, context.Cause(term.Context()), etcdlock.ErrUnlocked)
	next := awaitTerm(t, "the chosen candidate", chosen)
	require.Greater(t, next.Token(), term.Token())
	awaitTickets(t, client, 4)
	require.Equal(t, []string{"d", "e"}, valuesInLine(t, client)[:2])

	stillWaiting(t, passedOver)
	stillWaiting(t, alsoPassedOver)
	resign(t, next)
	resign(t, awaitTerm(t, "the one behind", unconcerned))
	for range 2 { // in either order
		select {
		case r := <-passedOver:
			require.NoError(t, r.err)
			resign(t, r.term)
		case r := <-alsoPassedOver:
			require.NoError(t, r.err)
			resign(t, r.term)
		case <-within(t).Done():
			require.FailNow(t, "those passed over do not lead")
		}
	}
	lead(t, candidate(t, cluster), "end")
	want := truth.until(t, "end")
	require.Equal(t, []string{"", "a", "d", "e"}, values(want)[:4], "no revision in between")
	require.Equal(t, want, await(t, "the observer", observed.all))
}

// Priorities are for a term that nobody was chosen for.
func TestATransferGoesToTheNamedCandidateWhateverThePriorities(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][2]string{"ahead of the higher one": {"low", "high"}, "behind it": {"high", "low"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := embedtest.Start(t)
			client := cluster.Client(t)
			priorities := map[string]int{"low": 1, "high": 9}
			waiting := map[string]<-chan campaigned{}
			term := lead(t, candidate(t, cluster), "a")
			for i, value := range order {
				waiting[value] = inLine(t, client, candidate(t, cluster, etcdlock.WithPriority(priorities[value])), value, i+2)
			}
			var reads atomic.Int64 // of the whole line: the transfer's, then that of the chosen one
			looking := cluster.Hold("Range", embedtest.When(func(message any) bool {
				r := message.(*etcdserverpb.RangeRequest)
				return string(r.Key) == controllerPrefix && r.Limit == 0 && r.SortOrder == etcdserverpb.RangeRequest_NONE && reads.Add(1) > 1
			}))
			require.NoError(t, term.Transfer(within(t), "low"))
			require.NoError(t, looking.Wait(within(t)))
			awaitLine(t, client, "low", "high")
			stillWaiting(t, waiting["high"])
			looking.Heal()
			low := awaitTerm(t, "the chosen one", waiting["low"])
			awaitLine(t, client, "low", "high")
			require.NoError(t, low.Proclaim(within(t), "still low"))
			stillWaiting(t, waiting["high"])
			resign(t, low)
			resign(t, awaitTerm(t, "the higher one", waiting["high"]))
		})
	}
}

// A resignation that comes next is no transfer: priorities count again.
func TestWhoWasPassedOverIsPreferredAgainAfterATransfer(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	term := lead(t, candidate(t, cluster), "a")
	inLine(t, client, candidate(t, cluster, etcdlock.WithPriority(1)), "low", 2)
	high := inLine(t, client, candidate(t, cluster, etcdlock.WithPriority(9)), "high", 3)
	require.NoError(t, term.Transfer(within(t), "high"))
	term = awaitTerm(t, "the higher one", high)
	awaitLine(t, client, "high", "low")
	again := inLine(t, client, candidate(t, cluster, etcdlock.WithPriority(5)), "middle", 3)
	resign(t, term)
	term = awaitTerm(t, "the higher one of the two", again)
	awaitLine(t, client, "middle", "low")
	resign(t, term)
}

// Nobody would lead until its lease is over. A process that was started again has the name of the one before.
func TestATransferDoesNotGoToACandidateThatIsCutOff(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster) {
		client := cluster.Client(t)
		term := lead(t, virtualCandidate(t, cluster), "a")
		cutOff, err := client.Grant(within(t), 15)
		require.NoError(t, err)
		_, err = client.Put(within(t), fmt.Sprintf("%sl%x-0-9", controllerPrefix, cutOff.ID), "b", clientv3.WithLease(cutOff.ID))
		require.NoError(t, err)
		time.Sleep(9 * time.Second)
		err = term.Transfer(within(t), "b")
		require.ErrorIs(t, err, etcdlock.ErrNotWaiting)
		require.ErrorContains(t, err, "not been renewed")
		require.NoError(t, term.Err())

		again := inLine(t, client, virtualCandidate(t, cluster), "b", 3)
		require.NoError(t, term.Transfer(within(t), "b"))
		resign(t, awaitTerm(t, "the one that lives", again))
	})
}

// Nor is it preferred.
func TestACandidateThatIsCutOffIsNotPreferred(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster) {
		client := cluster.Client(t)
		term := lead(t, virtualCandidate(t, cluster), "a")
		low := inLine(t, client, virtualCandidate(t, cluster), "low", 2)
		cutOff, err := client.Grant(within(t), 15)
		require.NoError(t, err)
		_, err = client.Put(within(t), fmt.Sprintf("%sl%x-0-9", controllerPrefix, cutOff.ID), "high", clientv3.WithLease(cutOff.ID))
		require.NoError(t, err)
		time.Sleep(9 * time.Second)
		resign(t, term)
		term = awaitTerm(t, "the one that lives", low)
		require.Equal(t, []string{"low", "high"}, valuesInLine(t, client), "before the other's lease is over")
		resign(t, term)
	})
}

// The transfer took effect, and its answer comes when the resignation has found nothing left.
func TestResigningAtTheMomentOfATransferIsNoLoss(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	term := lead(t, candidate(t, cluster), "a")
	waiting := inLine(t, client, candidate(t, cluster), "b", 2)
	answer := cluster.LoseReply("Txn", embedtest.Once(), embedtest.When(retires))
	transferred, resigned := make(chan error, 1), make(chan error, 1)
	go func() { transferred <- term.Transfer(within(t), "b") }()
	require.NoError(t, answer.Wait(within(t)))
	before := cluster.Calls("Txn")
	go func() { resigned <- term.Resign(within(t)) }()
	require.Eventually(t, func() bool { return cluster.Calls("Txn") > before }, patience, waitABit)
	answer.Heal()
	require.NoError(t, await(t, "the resignation", resigned))
	require.NoError(t, await(t, "the transfer", transferred))
	require.ErrorIs(t, term.Err(), etcdlock.ErrUnlocked)
	resign(t, awaitTerm(t, "the next", waiting))
}

// The second one waits for the first, and for no longer than its context lasts.
func TestTransfersAtATimeTakeTurns(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	term := lead(t, candidate(t, cluster), "a")
	inLine(t, client, candidate(t, cluster), "b", 2)
	inLine(t, client, candidate(t, cluster), "c", 3)
	reading := cluster.Hold("Range")
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- term.Transfer(within(t), "nobody") }()
	require.NoError(t, reading.Wait(within(t)))
	require.ErrorIs(t, term.Transfer(cancelled(), "c"), context.Canceled)
	go func() { second <- term.Transfer(within(t), "c") }()
	reading.Heal()
	require.ErrorIs(t, await(t, "the first", first), etcdlock.ErrNotWaiting)
	require.NoError(t, await(t, "the second", second))
	require.ErrorIs(t, term.Transfer(within(t), "b"), etcdlock.ErrUnlocked)
	awaitLine(t, client, "c", "b")
}

// It takes a write if the other one would be preferred, and etcd refuses that without space.
func TestATransferThatEtcdHasNoSpaceForLeavesTheTermAsItIs(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	term := lead(t, candidate(t, cluster), "a")
	waiting := inLine(t, client, candidate(t, cluster), "b", 2)
	inLine(t, client, candidate(t, cluster, etcdlock.WithPriority(1)), "c", 3)
	disarm := fillUp(t, cluster)
	require.ErrorIs(t, term.Transfer(within(t), "b"), rpctypes.ErrNoSpace)
	require.NoError(t, term.Err())
	stillWaiting(t, waiting)
	disarm()
	require.NoError(t, term.Transfer(within(t), "b"))
	resign(t, awaitTerm(t, "the next", waiting))
}

func TestTheFirstCandidateOfThatNameIsChosen(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	term := lead(t, candidate(t, cluster), "a")
	inLine(t, client, candidate(t, cluster), "b", 2)
	first := inLine(t, client, candidate(t, cluster), "c", 3)
	second := inLine(t, client, candidate(t, cluster), "c", 4)
	require.NoError(t, term.Transfer(within(t), "c"))
	awaitTerm(t, "the first of the two", first)
	stillWaiting(t, second)
}

func TestATransferToNobodyLeavesTheTermAsItIs(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	term := lead(t, candidate(t, cluster), "a")
	err := term.Transfer(within(t), "b")
	require.ErrorIs(t, err, etcdlock.ErrNotWaiting)
	require.ErrorContains(t, err, `transfer "controller"`)
	waiting := inLine(t, client, candidate(t, cluster), "b", 2)
	require.ErrorIs(t, term.Transfer(within(t), "a"), etcdlock.ErrNotWaiting, "the leader does not wait")
	require.NoError(t, term.Err())
	require.Equal(t, []string{"a", "b"}, valuesInLine(t, client))
	stillWaiting(t, waiting)
	resign(t, term)
}

func TestATransferDoesNotPassOverOtherPrograms(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	term := lead(t, candidate(t, cluster), "a")
	s, err := concurrency.NewSession(client)
	require.NoError(t, err)
	foreign := concurrency.NewElection(s, "etcdlock/controller")
	led := make(chan error, 1)
	go func() { led <- foreign.Campaign(within(t), "foreign") }()
	awaitTickets(t, client, 2)
	waiting := inLine(t, client, candidate(t, cluster), "b", 3)
	require.ErrorIs(t, term.Transfer(within(t), "b"), etcdlock.ErrForeign)
	require.NoError(t, term.Err())
	require.Equal(t, []string{"a", "foreign", "b"}, valuesInLine(t, client))

	require.NoError(t, term.Transfer(within(t), "foreign"), "to it is another matter")
	require.NoError(t, await(t, "the other program", led))
	stillWaiting(t, waiting)
	require.NoError(t, s.Close())
	resign(t, awaitTerm(t, "ours", waiting))
}

// The transfer took effect, and has not heard of it yet.
func TestWhoFindsATermPassedOnMeanwhileIsNotToldOfALoss(t *testing.T) {
	t.Parallel()
	for name, look := range map[string]func(*etcdlock.Term) error{
		"txn": func(term *etcdlock.Term) error {
			_, err := term.Txn(within(t)).Commit()
			return err
		},
		"proclaim": func(term *etcdlock.Term) error { return term.Proclaim(within(t), "late") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := embedtest.Start(t)
			client := cluster.Client(t)
			term := lead(t, candidate(t, cluster), "a")
			waiting := inLine(t, client, candidate(t, cluster), "b", 2)
			lost := cluster.LoseReply("Txn", embedtest.Once())
			transferred := make(chan error, 1)
			go func() { transferred <- term.Transfer(within(t), "b") }()
			require.NoError(t, lost.Wait(within(t)))
			err := look(term)
			require.ErrorIs(t, err, etcdlock.ErrUnlocked)
			require.NotErrorIs(t, err, etcdlock.ErrLost)
			require.NoError(t, await(t, "the transfer", transferred))
			require.ErrorIs(t, term.Err(), etcdlock.ErrUnlocked)
			resign(t, awaitTerm(t, "the next", waiting))
		})
	}
}

// Until the transfer is over nobody but it decides how the term has ended.
func TestATermThatIsLostBeforeItIsPassedOnIsLost(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	term := lead(t, candidate(t, cluster), "a")
	waiting := inLine(t, client, candidate(t, cluster), "b", 2)
	reading := cluster.Hold("Range", embedtest.Once())
	transferred := make(chan error, 1)
	go func() { transferred <- term.Transfer(within(t), "b") }()
	require.NoError(t, reading.Wait(within(t)))
	require.NoError(t, etcdlock.ForceRelease(within(t), client, term.Key(), term.Token()))
	next := awaitTerm(t, "the next", waiting)
	require.ErrorIs(t, term.Proclaim(within(t), "late"), etcdlock.ErrUnlocked)
	reading.Heal()
	require.ErrorIs(t, await(t, "the transfer", transferred), etcdlock.ErrLost)
	require.ErrorIs(t, term.Err(), etcdlock.ErrLost)
	resign(t, next)
}

func TestALostTermCannotBeTransferred(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	term := lead(t, candidate(t, cluster), "a")
	waiting := inLine(t, client, candidate(t, cluster), "b", 2)
	third := inLine(t, client, candidate(t, cluster), "c", 3)
	remove(t, client, term.Key())
	require.NoError(t, awaitTerm(t, "the next", waiting).Err())
	require.ErrorIs(t, term.Transfer(within(t), "c"), etcdlock.ErrLost)
	require.ErrorIs(t, term.Err(), etcdlock.ErrLost)
	require.ErrorIs(t, term.Transfer(within(t), "c"), etcdlock.ErrLost)
	stillWaiting(t, third)
	require.Equal(t, []string{"b", "c"}, valuesInLine(t, client))
}

// Promise 10 and 11: what hangs on the session does not outlast it.
func TestATransferEndsWithTheSessionWhenEtcdIsSilent(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client, link := cluster.Link(t)
	term := lead(t, etcdlock.NewElection(newSession(t, client, session.WithTTL(secondTTL)), "controller"), "a")
	waiting := inLine(t, cluster.Client(t), candidate(t, cluster), "b", 2)
	link.Blackhole()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	transferred := make(chan error, 1)
	go func() { transferred <- term.Transfer(ctx, "b") }()
	require.ErrorIs(t, await(t, "the transfer", transferred), etcdlock.ErrLost)
	require.ErrorIs(t, term.Err(), etcdlock.ErrLost)
	awaitTerm(t, "the next candidate", waiting)
}

// A term that is over a second old watches its key, whose end must not count as a loss.
func TestATransferIsNoLoss(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	released := make(chan etcdlock.Released, 2)
	hooks := &etcdlock.Hooks{
		Lost:     func(e etcdlock.Lost) { t.Errorf("the term was lost: %v", e.Err) },
		Released: func(e etcdlock.Released) { released <- e },
	}
	before := cluster.Calls("Watch")
	term := lead(t, candidate(t, cluster, etcdlock.WithHooks(hooks)), "a")
	awaitWatch(t, cluster, before)
	waiting := inLine(t, client, candidate(t, cluster), "b", 2)
	// The answer comes long after the event.
	loseOneReply(t, cluster, retires, func() { <-waiting })
	require.NoError(t, term.Transfer(within(t), "b"))
	require.ErrorIs(t, term.Err(), etcdlock.ErrUnlocked)
	require.NoError(t, await(t, "the release", released).Err)
	require.NoError(t, term.Resign(within(t)), "there is nothing left to resign from")
	require.Empty(t, released)
	require.Equal(t, []string{"b"}, valuesInLine(t, client))
}

// A transfer whose outcome is unknown is finished in the background.
func TestATransferWithoutAnAnswerEndsTheTerm(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	s := newSession(t, client)
	term := lead(t, etcdlock.NewElection(s, "controller"), "a")
	inLine(t, client, candidate(t, cluster), "b", 2)
	silence := cluster.LoseRequest("Txn", embedtest.When(retires))
	ctx, cancel := context.WithCancel(within(t))
	go func() {
		<-silence.Bitten()
		cancel()
	}()
	require.ErrorIs(t, term.Transfer(ctx, "b"), context.Canceled)
	require.ErrorIs(t, term.Err(), etcdlock.ErrUnlocked)
	silence.Heal()
	awaitLine(t, client, "b")
	require.NoError(t, s.Err())
}

func TestATransferThatIsNotSentLeavesTheTermAsItIs(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	term := lead(t, candidate(t, cluster), "a")
	inLine(t, client, candidate(t, cluster), "b", 2)
	require.ErrorIs(t, term.Transfer(cancelled(), "b"), context.Canceled)
	require.NoError(t, term.Err())
	require.Equal(t, []string{"a", "b"}, valuesInLine(t, client))
	require.NoError(t, term.Transfer(within(t), "b"))
}

// If the name of the old key became free twice, two candidates would share one key, and both lead.
func TestResigningDuringATransferFreesTheKeyOnce(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	e := candidate(t, cluster)
	term := lead(t, e, "a")
	inLine(t, client, candidate(t, cluster), "b", 2)
	silence := cluster.LoseReply("Txn", embedtest.Once(), embedtest.When(retires))
	transferred := make(chan error, 1)
	go func() { transferred <- term.Transfer(within(t), "b") }()
	require.NoError(t, silence.Wait(within(t)))
	_ = term.Resign(cancelled()) // it cannot know how the term ended
	require.ErrorIs(t, term.Err(), etcdlock.ErrUnlocked)
	inLine(t, client, e, "c", 2)
	silence.Heal()
	require.NoError(t, await(t, "the transfer", transferred))
	inLine(t, client, e, "d", 3)
	require.Equal(t, []string{"b", "c", "d"}, valuesInLine(t, client))
}
