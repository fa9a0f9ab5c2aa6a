package fairqueue

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// How a process is called is not for its lock to refuse.
func TestLongNamesOfAProcessAreCut(t *testing.T) {
	t.Parallel()
	o := processOwner(strings.Repeat("h", 300), "/bin/"+strings.Repeat("ü", 40), "label")
	require.Equal(t, strings.Repeat("h", 255), o.Host)
	require.Equal(t, strings.Repeat("ü", 32), o.Program)
	o = processOwner("h", strings.Repeat("p", 63)+"ü", "label")
	require.Equal(t, strings.Repeat("p", 63), o.Program, "no half of a letter")
	require.True(t, utf8.ValidString(o.Program))
	require.Equal(t, "label", o.Label)

	worst := processOwner(strings.Repeat("h", 300), strings.Repeat("\x01", 100), strings.Repeat("\x01", longestLabel))
	require.Less(t, len(valueAt(worst.template(), time.Now())), 4<<10)
}
