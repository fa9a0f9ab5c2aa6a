package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// ends are the ways in which a member is taken down.
var ends = map[string]func(*embedtest.Member){
	"stopped": (*embedtest.Member).Stop, "killed": (*embedtest.Member).Kill,
}

// roll takes all members down and up again, one by one, each while it leads.
func roll(t *testing.T, cluster *embedtest.Cluster, end func(*embedtest.Member)) {
	t.Helper()
	for _, m := range cluster.Members() {
		require.NoError(t, cluster.MoveLeader(within(t), m))
		end(m)
		_, err := cluster.WaitLeader(within(t))
		require.NoError(t, err)
		require.NoError(t, m.Restart())
	}
}

// atLeisure is for what lasts while three members are restarted, which takes a busy machine long.
func atLeisure(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
	t.Cleanup(cancel)
	return ctx
}

// One lock of every kind, each held and waited for by two.
func TestHoldsAndLinesSurviveTheRestartOfAllMembersOneByOne(t *testing.T) {
	t.Parallel()
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := embedtest.Start(t, embedtest.WithSize(3))
			holder := newSession(t, cluster.Client(t))
			first, second := newSession(t, cluster.Client(t)), newSession(t, cluster.Client(t))
			var lines []*rollingLine
			for i, k := range kinds {
				name := fmt.Sprint("orders", i)
				queue := k.queue
				k.queue = func(string) string { return queue(name) }
				b := &bench{kind: k, cluster: cluster, client: cluster.Client(t), session: holder}
				l := &rollingLine{bench: b, held: lock(t, b.blocker())}
				l.first = b.wait(atLeisure(t), t, k.open(first, name), 1)
				l.second = b.wait(atLeisure(t), t, k.open(second, name), 2)
				lines = append(lines, l)
			}
			renewed := renewing(t, holder)
			roll(t, cluster, end)
			require.NoError(t, renewed())
			for _, l := range lines {
				l.requireOrder(t)
			}
			for _, s := range []*session.Session{holder, first, second} {
				require.NoError(t, s.Renew(within(t)))
			}
			requireNothingLeft(t, cluster.Client(t))
		})
	}
}

// renewing renews all the time, rather than once in a third of the TTL, until the function that
// it returns is called, which says what came of it.
func renewing(t *testing.T, s *session.Session) (stop func() error) {
	ctx, cancel := context.WithCancel(atLeisure(t))
	end := make(chan error, 1)
	go func() {
		var err error
		for err == nil && ctx.Err() == nil {
			err = s.Renew(ctx)
		}
		end <- err
	}()
	return func() error {
		cancel()
		if err := <-end; !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}
}

type rollingLine struct {
	*bench

	held          *etcdlock.Hold
	first, second <-chan result
}

func (l *rollingLine) requireOrder(t *testing.T) {
	t.Helper()
	require.NoError(t, l.held.Err(), l.title)
	requireWaiting(t, l.first)
	requireWaiting(t, l.second)
	require.Equal(t, 3, l.inLine(t), l.title)
	unlock(t, l.held)
	one := granted(t, l.first)
	require.Greater(t, one.Token(), l.held.Token(), l.title)
	if l.width == 1 {
		requireWaiting(t, l.second)
		unlock(t, one)
	}
	two := granted(t, l.second)
	if l.width == 1 {
		require.Greater(t, two.Token(), one.Token(), l.title)
	} else {
		unlock(t, one)
	}
	unlock(t, two)
}
