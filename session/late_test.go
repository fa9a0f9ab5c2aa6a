package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/session"
)

// A transaction that has waited for long to be sent has not been waiting for an answer.
func TestTransactionsThatAreSentLateAreSentOnce(t *testing.T) {
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
		require.Greater(t, longest, 4*time.Second, "nothing was sent late")
		require.Len(t, f.sent(), len(all))
	})
}
