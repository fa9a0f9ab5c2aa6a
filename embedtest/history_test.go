package embedtest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

// caughtUp returns all changes until now.
func caughtUp(t *testing.T, h *embedtest.History) []embedtest.Change {
	t.Helper()
	revision, err := h.CatchUp(within(t, patience))
	require.NoError(t, err)
	require.Equal(t, revision, h.Revision())
	changes, err := h.Changes(0)
	require.NoError(t, err)
	return changes
}

func TestAHistoryHasEachRevisionOnceWhicheverMemberEnds(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3))
	client, h := c.Client(t), c.Record()
	began, want := time.Now(), map[int64]string{}
	write := func(client *clientv3.Client) {
		value := fmt.Sprint(len(want))
		answer, err := client.Txn(within(t, patience)).Then(clientv3.OpPut("a", value), clientv3.OpPut("b", value)).Commit()
		require.NoError(t, err)
		want[answer.Header.Revision] = value
	}
	added, err := c.AddMember(within(t, patience))
	require.NoError(t, err)
	for _, m := range c.Members() {
		write(client)
		m.Stop()
		write(client)
		require.NoError(t, m.Restart())
		write(client)
	}
	c.Members()[0].Isolate()
	leader, err := c.WaitLeader(within(t, patience))
	require.NoError(t, err)
	write(leader.Client(t))
	c.Members()[0].Heal()
	for _, m := range c.Members()[:3] {
		if m != added {
			require.NoError(t, m.Remove(within(t, patience)))
		}
	}
	write(added.Client(t))

	last := int64(0)
	for _, change := range caughtUp(t, h) {
		require.Greater(t, change.Revision, last)
		last = change.Revision
		require.False(t, change.Seen.Before(began) || change.Seen.After(time.Now()))
		require.Len(t, change.Events, 2)
		for i, key := range []string{"a", "b"} {
			require.Equal(t, key, string(change.Events[i].Kv.Key))
			require.Equal(t, want[change.Revision], string(change.Events[i].Kv.Value))
			require.Equal(t, change.Revision, change.Events[i].Kv.ModRevision)
		}
		delete(want, change.Revision)
	}
	require.Empty(t, want)
}

func TestAHistoryIsReadOnFromWhereItIs(t *testing.T) {
	c := embedtest.Start(t)
	client := c.Client(t)
	put(t, client, "k", "before it is recorded")
	h := c.Record()
	changes := caughtUp(t, h)
	require.Len(t, changes, 1)
	put(t, client, "k", "after")
	_, err := client.Delete(within(t, patience), "k")
	require.NoError(t, err)
	require.Len(t, caughtUp(t, h), 3)
	later, err := h.Changes(changes[0].Revision)
	require.NoError(t, err)
	require.Len(t, later, 2)
	require.Equal(t, clientv3.EventTypeDelete, later[1].Events[0].Type)
	none, err := h.Changes(later[1].Revision)
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestACompactionOfWhatIsRecordedLeavesNoGap(t *testing.T) {
	c := embedtest.Start(t)
	client, h := c.Client(t), c.Record()
	require.Empty(t, caughtUp(t, h))
	put(t, client, "k", "v")
	_, err := client.Delete(within(t, patience), "k")
	require.NoError(t, err)
	caughtUp(t, h)
	_, err = c.Compact(within(t, patience))
	require.NoError(t, err)
	require.NoError(t, c.Members()[0].Restart())
	put(t, client, "k", "w")
	require.Len(t, caughtUp(t, h), 3)
}

func TestAHistoryCannotBeginAfterACompaction(t *testing.T) {
	c := embedtest.Start(t)
	put(t, c.Client(t), "k", "v")
	_, err := c.Compact(within(t, patience))
	require.NoError(t, err)
	h := c.Record()
	_, err = h.CatchUp(within(t, patience))
	require.ErrorContains(t, err, "compacted")
	changes, err := h.Changes(0)
	require.ErrorContains(t, err, "compacted")
	require.Empty(t, changes)
}

func TestAHistoryThatIsStoppedStays(t *testing.T) {
	c := embedtest.Start(t)
	client, h := c.Client(t), c.Record()
	put(t, client, "k", "v")
	require.Len(t, caughtUp(t, h), 1)
	h.Stop()
	h.Stop()
	require.Len(t, caughtUp(t, h), 1)
	put(t, client, "k", "w")
	_, err := h.CatchUp(within(t, patience))
	require.ErrorContains(t, err, "stopped")

	closed := c.Record()
	require.Len(t, caughtUp(t, closed), 2)
	require.NoError(t, c.Close())
	for _, h := range []*embedtest.History{closed, c.Record()} {
		_, err = h.CatchUp(within(t, patience))
		require.ErrorContains(t, err, "closed")
		h.Stop()
	}
	changes, err := closed.Changes(0)
	require.NoError(t, err)
	require.Len(t, changes, 2)
}

func TestTheEndOfALeaseIsOneChange(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *embedtest.Cluster) {
		client, h := c.Client(t), c.Record()
		lease, err := client.Grant(t.Context(), 60)
		require.NoError(t, err)
		granted := time.Now()
		for _, key := range []string{"a", "b"} {
			_, err := client.Put(t.Context(), key, "", clientv3.WithLease(lease.ID))
			require.NoError(t, err)
		}
		time.Sleep(2 * time.Minute)
		changes := caughtUp(t, h)
		require.Len(t, changes, 3)
		require.Len(t, changes[2].Events, 2)
		require.InDelta(t, time.Minute, changes[2].Seen.Sub(granted), float64(time.Second))
	})
}
