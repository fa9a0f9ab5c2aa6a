package versions

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdlock/locks/etcdlock"
)

func TestLeadersOfAllKindsAreReadByEachOther(t *testing.T) {
	values := map[string]string{
		"Election": "ours", "concurrency.Election": "theirs", "election service": "served", "etcdctl elect": "etcdctl",
	}
	shared(t, func(t *testing.T, e *etcd, others []kind) {
		q := newQueue(t, e)
		reader := etcdlock.NewElection(newSession(t, e), q.prefix, etcdlock.AtPrefix())
		theirReader := concurrency.NewElection(theirSession(t, e), q.prefix)
		theirObserver := theirReader.Observe(within(t))
		begun, all := observed(within(t), reader, "end")
		await(t, "our observer", begun)

		expected := []string{""}
		for _, k := range append(others[:len(others):len(others)], ours...) {
			value, leads := values[k.name]
			if !leads {
				continue
			}
			p := q.join(t, k)
			p.awaitTurn(t)
			require.Equal(t, value, string(await(t, "their observer", theirObserver).Kvs[0].Value))
			answer, err := theirReader.Leader(within(t))
			require.NoError(t, err)
			require.Equal(t, value, string(answer.Kvs[0].Value))
			leader, err := reader.Leader(within(t))
			require.NoError(t, err)
			require.Equal(t, etcdlock.Leader{
				Value: value, Key: string(p.kv.Key), Token: etcdlock.Token(p.kv.CreateRevision),
			}, leader)
			p.leave(t)
			expected = append(expected, value, "")
		}
		end, err := reader.Campaign(within(t), "end")
		require.NoError(t, err)
		require.Equal(t, append(expected, "end"), taken(t, "all leaders", all))
		require.NoError(t, end.Resign(within(t)))
	})
}

func TestATransferRefusesToPassOverACandidateOfAnotherKind(t *testing.T) {
	shared(t, func(t *testing.T, e *etcd, others []kind) {
		q, s := newQueue(t, e), newSession(t, e)
		election := etcdlock.NewElection(s, q.prefix, etcdlock.AtPrefix())
		term, err := election.Campaign(within(t), "leader")
		require.NoError(t, err)
		foreign := q.join(t, others[0])
		chosen := q.join(t, ours[2]) // the Election
		require.ErrorIs(t, term.Transfer(within(t), "ours"), etcdlock.ErrForeign)
		require.NoError(t, term.Err(), "the term goes on")
		foreign.waits(t)
		revoke(t, q.admin, s.Lease())
		foreign.awaitTurn(t)
		foreign.leave(t)
		chosen.awaitTurn(t)
		chosen.leave(t)
	})
}
