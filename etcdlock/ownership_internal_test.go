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
		asked, used time.Time
		trusted     bool
	}{
		"just granted":                        {},
		"never asked for":                     {used: now},
		"asked for, and used a moment ago":    {now.Add(-time.Millisecond), now.Add(-10 * time.Microsecond), true},
		"after a pause":                       {now.Add(-time.Millisecond), now.Add(-pauseless), false},
		"used all the time since a long time": {now.Add(-longestTrust), now, false},
	} {
		o := &ownership{asked: c.asked, used: c.used}
		require.Equal(t, c.trusted, o.trusted(now), name)
	}
}
