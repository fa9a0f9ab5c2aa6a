package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/session"
)

// Who has waited for long to go out has not been waiting for an answer.
func TestThoseWhoGoOutLateAreAskedForOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f, session.WithTTL(time.Hour))
		f.set(func(f *fake) { f.txn = late(time.Second) })
		all := removals(f, s, "a", 600)
		for i := range all {
			all[i].Apart = "queue"
		}
		results, wait := commits(context.Background(), s, all...)
		wait()
		longest := time.Duration(0)
		for _, r := range results {
			require.NoError(t, r.err)
			require.Zero(t, r.doubts)
			longest = max(longest, r.took)
		}
		require.Greater(t, longest, 4*time.Second, "nobody went out late")
		require.Len(t, f.sent(), len(all))
	})
}

// A request may take no notice of its end. Those who went out with it go on at their own limit.
func TestARequestThatDoesNotEndKeepsNobody(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f, session.WithTTL(time.Hour))
		f.set(func(f *fake) { f.txn = late(time.Second) })
		wait := busy(f, s)
		results, waitForAll := commits(context.Background(), s, removals(f, s, "a", 2)...)
		release := make(chan struct{})
		f.set(func(f *fake) { f.txn = deaf(release) })
		time.Sleep(2 * time.Second) // virtual; the two have been sent together, and are not heard
		f.set(func(f *fake) { f.txn = nil })
		waitForAll()
		for _, r := range results {
			require.NoError(t, r.err)
			require.Equal(t, 1, r.doubts)
			require.Less(t, r.took, 4*time.Second)
		}
		close(release)
		wait()
	})
}
