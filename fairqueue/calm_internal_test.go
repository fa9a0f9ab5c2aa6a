package fairqueue

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAQueueIsCalmForAMomentAfterNobodyWasMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c calm
		require.False(t, c.expected())
		c.met(true)
		require.True(t, c.expected())
		c.leaving.Add(1)
		require.False(t, c.expected(), "somebody is about to leave")
		c.leaving.Add(-1)
		require.True(t, c.expected())
		c.met(false)
		require.False(t, c.expected())
		c.met(true)
		time.Sleep(calmFor) // virtual
		require.False(t, c.expected(), "by now many may be there")
	})
}
