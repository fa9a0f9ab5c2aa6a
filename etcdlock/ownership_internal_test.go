package etcdlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What is used without a pause is not asked for each time.
func TestAnOwnershipIsTrustedWithoutAQuestionWhileItIsUsedWithoutAPause(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		asked, used, waits time.Time
		trusted            bool
	}{
		"just granted":                        {},
		"never asked for":                     {used: now},
		"asked for, and used a moment ago":    {now.Add(-time.Millisecond), now.Add(-10 * time.Microsecond), time.Time{}, true},
		"after a pause":                       {now.Add(-time.Millisecond), now.Add(-pauseless), time.Time{}, false},
		"used all the time since a long time": {now.Add(-longestTrust), now, time.Time{}, false},
		"asked for while the call waits":      {now.Add(-time.Hour), now.Add(-time.Hour), now.Add(-2 * time.Hour), true},
		"asked for before the call":           {now.Add(-time.Hour), now.Add(-time.Hour), now.Add(-time.Minute), false},
	} {
		o := &ownership{asked: c.asked, used: c.used}
		require.Equal(t, c.trusted, o.trusted(c.waits, now), name)
	}
}
