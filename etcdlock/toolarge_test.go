package etcdlock_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/etcdlock"
)

func TestAValueThatIsTooLargeIsRefusedAndHarmsNothing(t *testing.T) {
	c := newContest(t)
	tooLarge := strings.Repeat("v", 1<<20+1)
	term := c.lead("node-1")

	other := c.candidate()
	before := requests(c.cluster)
	_, err := other.Campaign(within(t), tooLarge)
	require.ErrorIs(t, err, etcdlock.ErrTooLarge)
	require.ErrorContains(t, err, `campaign "controller"`)
	require.ErrorContains(t, err, "1048576")
	require.ErrorIs(t, other.Run(within(t), tooLarge, neverLeads), etcdlock.ErrTooLarge)
	require.ErrorIs(t, term.Proclaim(within(t), tooLarge), etcdlock.ErrTooLarge)
	require.Equal(t, before, requests(c.cluster), "so there is nothing to look after")

	require.NoError(t, term.Err())
	require.Equal(t, []string{"node-1"}, c.line())
	require.NoError(t, term.Proclaim(within(t), tooLarge[1:]))
	resign(t, term)
}

func TestALabelThatIsTooLongIsRefusedByEveryKindOfLock(t *testing.T) {
	cluster, _ := newCluster(t)
	s := newSession(t, cluster.Client(t))
	label := etcdlock.WithLabel(strings.Repeat("l", 513))
	part := etcdlock.NewMutex(s, "part", label)
	before := cluster.AppliedIndex()
	for name, l := range map[string]etcdlock.Locker{
		"mutex":     etcdlock.NewMutex(s, "a", label),
		"rwmutex":   etcdlock.NewRWMutex(s, "a", label),
		"readlock":  etcdlock.NewRWMutex(s, "a", label).RLocker(),
		"semaphore": etcdlock.NewSemaphore(s, "s", 2, label),
		"multi":     etcdlock.NewMulti(s, etcdlock.NewMutex(s, "b"), part),
		"striped":   anyN(etcdlock.NewStriped(s, "stock", 3, label), 1),
		"handover":  etcdlock.NewMutex(s, "h", label, etcdlock.WithLocalHandover(longTTL, 10)),
	} {
		_, err := l.Lock(within(t))
		require.ErrorIs(t, err, etcdlock.ErrTooLarge, name)
		require.ErrorContains(t, err, "513 bytes, at most 512", name)
		_, err = l.TryLock(within(t))
		require.ErrorIs(t, err, etcdlock.ErrTooLarge, name)
	}
	require.Equal(t, before, cluster.AppliedIndex())
}
