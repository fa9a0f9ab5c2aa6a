package coord

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

// A waiter sees a mark in the moment in which it gets the lock. The mark expires, and the waiter's own function fails: that
// mark must not hide the failure.
func TestAMarkThatWasSeenIsForgottenWithTheGrant(t *testing.T) {
	t.Parallel()
	sessions := session.Keep(embedtest.Start(t).Client(t))
	defer func() { _ = sessions.Close(t.Context()) }()
	line := &onceLine{once: NewOnce(sessions, "x"), mark: &onceMark{value: "expired"}}
	h, err := line.Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.Unlock(t.Context()))
	require.Nil(t, line.mark)
}
