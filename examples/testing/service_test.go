package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

var (
	staff       = []string{"ann", "bob", "carl"}
	onceEach    = map[string]int{"ann": 1, "bob": 1, "carl": 1}
	shortLeases = session.WithTTL(2 * time.Second) // a loss takes about as long
)

// runs are the service as it should be, and as it was.
var runs = map[string]func(*Payroll, context.Context) error{
	"right":    (*Payroll).Run,
	"careless": (*Payroll).RunCarelessly,
}

// patience bounds what must happen soon; no test depends on how soon.
func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func newTestBank(t *testing.T) *fakeBank {
	return newFakeBank(func(who, format string, args ...any) { t.Logf(who+" "+format, args...) })
}

func closeLater(t *testing.T, p *Payroll) {
	t.Cleanup(func() { _ = p.Close(context.Background()) })
}

// What everybody tests. It does not tell the one from the other.
func TestEverybodyIsPaid(t *testing.T) {
	for name, run := range runs {
		t.Run(name, func(t *testing.T) {
			cluster, bank := embedtest.Start(t), newTestBank(t)
			for range 2 {
				p := NewPayroll(cluster.Client(t), counter{bank, name}, "", staff, shortLeases)
				closeLater(t, p)
				require.NoError(t, run(p, patience(t)))
			}
			require.Equal(t, onceEach, bank.payments())
		})
	}
}

func TestNobodyIsPaidTwiceWhenTheLockIsLost(t *testing.T) {
	t.Parallel()
	payments, err := loseTheLock(t, (*Payroll).Run)
	require.ErrorIs(t, err, etcdlock.ErrLost)
	require.Equal(t, onceEach, payments)
}

// The same check finds the mistake, so it is worth something.
func TestTheLossShowsWhatIsWrongWithTheCarelessOne(t *testing.T) {
	t.Parallel()
	payments, err := loseTheLock(t, (*Payroll).RunCarelessly)
	require.NoError(t, err, "it does not even notice")
	require.Equal(t, map[string]int{"ann": 1, "bob": 2, "carl": 1}, payments)
}

// loseTheLock takes the network away from the first payroll while it pays Bob, has a second one take
// over, and returns who has been paid how often, and what the first one says about it.
func loseTheLock(t *testing.T, run func(*Payroll, context.Context) error) (map[string]int, error) {
	t.Helper()
	ctx := patience(t)
	cluster, bank := embedtest.Start(t), newTestBank(t)
	client, link := cluster.Link(t)
	first := NewPayroll(client, counter{bank, "first"}, "", staff, shortLeases)
	closeLater(t, first)
	second := NewPayroll(cluster.Client(t), counter{bank, "second"}, "", staff, shortLeases)
	closeLater(t, second)

	slow := bank.slowDown("bob")
	ended := make(chan error, 1)
	go func() { ended <- run(first, ctx) }()
	waitFor(t, slow.reached, ended)

	link.Blackhole()                     // its packets vanish, as when a switch fails
	require.NoError(t, run(second, ctx)) // it gets the lock when the lease has run out
	close(slow.goOn)                     // and only now the bank gets on with what the first one wanted
	link.Heal()                          // so that nothing hangs
	err := <-ended
	return bank.payments(), err
}

// An answer may be lost although the request was applied, whatever the lock.
func TestALostAnswerIsAskedForAgain(t *testing.T) {
	ctx := patience(t)
	cluster, bank := embedtest.Start(t), newTestBank(t)
	p := NewPayroll(cluster.Client(t), counter{bank, "payroll"}, "", staff, shortLeases)
	closeLater(t, p)
	slow := bank.slowDown("bob")
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	waitFor(t, slow.reached, ended)

	fault := cluster.LoseReply("Txn", embedtest.Once()) // the next one is the booking
	close(slow.goOn)
	require.NoError(t, fault.Wait(ctx))
	fault.Heal() // the client hears that there will be no answer, rather than wait for it
	require.NoError(t, <-ended)
	require.Equal(t, onceEach, bank.payments())
}

func TestAShutdownLeavesTheLockToTheNext(t *testing.T) {
	ctx, shutDown := context.WithCancelCause(patience(t))
	cluster, bank := embedtest.Start(t), newTestBank(t)
	first := NewPayroll(cluster.Client(t), counter{bank, "first"}, "", staff) // TTL 15 s: nobody waits for that
	closeLater(t, first)
	slow := bank.slowDown("bob")
	ended := make(chan error, 1)
	go func() { ended <- first.Run(ctx) }()
	waitFor(t, slow.reached, ended)

	shutDown(errors.New("SIGTERM"))
	require.ErrorIs(t, <-ended, context.Canceled)
	second := NewPayroll(cluster.Client(t), counter{bank, "second"}, "", staff)
	closeLater(t, second)
	h, err := second.lock.TryLock(patience(t))
	require.NoError(t, err, "the lock should be free")
	require.NoError(t, h.Unlock(patience(t)))
	require.NoError(t, second.Run(patience(t)))
	require.Equal(t, onceEach, bank.payments())
}

// waitFor waits for reached, unless the payroll ends before.
func waitFor(t *testing.T, reached <-chan struct{}, ended <-chan error) {
	t.Helper()
	select {
	case <-reached:
	case err := <-ended:
		require.FailNow(t, "ended too early", "%v", err)
	}
}
