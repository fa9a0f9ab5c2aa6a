package versions

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// stand makes a candidate wait in line.
func stand(t *testing.T, c *clientv3.Client, s *session.Session, value string) <-chan got[*etcdlock.Term] {
	t.Helper()
	e, ctx := etcdlock.NewElection(s, name(t)), within(t)
	return inLine(t, c, inNamespace(name(t)), func() (*etcdlock.Term, error) { return e.Campaign(ctx, value) })
}

func lead(t *testing.T, s *session.Session, value string) *etcdlock.Term {
	t.Helper()
	term, err := etcdlock.NewElection(s, name(t)).Campaign(within(t), value)
	require.NoError(t, err)
	return term
}

// observed follows an election in the background until somebody of that value leads.
func observed(ctx context.Context, e *etcdlock.Election, last string) (begun <-chan struct{}, all <-chan got[[]string]) {
	first := make(chan struct{})
	return first, going(func() ([]string, error) {
		var values []string
		for leader, err := range e.Observe(ctx) {
			if err != nil {
				return values, err
			}
			if values = append(values, leader.Value); len(values) == 1 {
				close(first)
			}
			if leader.Value == last {
				break
			}
		}
		return values, ctx.Err()
	})
}

func TestCandidatesLeadInOrderAndObserversSeeEveryChange(t *testing.T) {
	onEach(t, elections, func(t *testing.T, e *etcd) {
		admin, crashing := e.client(t), newSession(t, e)
		onlooker := etcdlock.NewElection(newSession(t, e), name(t))
		begun, all := observed(within(t), onlooker, "third")
		await(t, "the observer", begun)

		term := lead(t, newSession(t, e), "first")
		second := stand(t, admin, crashing, "second")
		third := stand(t, admin, newSession(t, e), "third")
		require.NoError(t, term.Proclaim(within(t), "first, again"))
		leader, err := onlooker.Leader(within(t))
		require.NoError(t, err)
		require.Equal(t, "first, again", leader.Value)

		require.NoError(t, term.Resign(within(t)))
		term = taken(t, "the second", second)
		require.Empty(t, third)
		revoke(t, admin, crashing.Lease())
		next := taken(t, "the third", third)
		await(t, "the loss of the term", term.Done())
		require.ErrorIs(t, term.Err(), etcdlock.ErrLost)
		require.Equal(t, []string{"", "first", "first, again", "second", "third"}, taken(t, "all leaders", all))
		require.NoError(t, next.Resign(within(t)))
	})
}

func TestATransferMakesTheChosenOneLeadAndNobodyInBetween(t *testing.T) {
	onEach(t, elections, func(t *testing.T, e *etcd) {
		admin := e.client(t)
		onlooker := etcdlock.NewElection(newSession(t, e), name(t))
		begun, all := observed(within(t), onlooker, "patient")
		await(t, "the observer", begun)

		term := lead(t, newSession(t, e), "old")
		patient := stand(t, admin, newSession(t, e), "patient")
		chosen := stand(t, admin, newSession(t, e), "chosen")
		require.NoError(t, term.Transfer(within(t), "chosen"))
		require.ErrorIs(t, term.Err(), etcdlock.ErrUnlocked)
		term = taken(t, "the chosen one", chosen)
		require.Empty(t, patient)

		eventually(t, "the one passed over to be in line again", func() bool {
			candidates, err := onlooker.Candidates(within(t))
			return err == nil && len(candidates) == 1
		})
		require.NoError(t, term.Resign(within(t)))
		require.NoError(t, taken(t, "the one passed over", patient).Resign(within(t)))
		require.Equal(t, []string{"", "old", "chosen", "patient"}, taken(t, "all leaders", all))
	})
}

func TestAPriorityIsPreferredWhenTheTermEnds(t *testing.T) {
	onEach(t, elections, func(t *testing.T, e *etcd) {
		admin, ctx := e.client(t), within(t)
		term := lead(t, newSession(t, e), "old")
		plain := stand(t, admin, newSession(t, e), "plain")
		better := etcdlock.NewElection(newSession(t, e), name(t), etcdlock.WithPriority(1))
		preferred := inLine(t, admin, inNamespace(name(t)), func() (*etcdlock.Term, error) { return better.Campaign(ctx, "preferred") })
		require.NoError(t, term.Resign(ctx))
		term = taken(t, "the preferred one", preferred)
		require.Empty(t, plain)
		require.NoError(t, term.Resign(ctx))
		require.NoError(t, taken(t, "the plain one", plain).Resign(ctx))
	})
}
