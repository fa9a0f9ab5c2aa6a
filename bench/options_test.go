package main

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOptions(t *testing.T) {
	o, err := parseOptions([]string{"-members", "1,3", "-fsync", "off", "-run", "hot"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, []int{1, 3}, o.members)
	require.Equal(t, []bool{false}, o.fsync)
	require.True(t, o.run.MatchString("hot lock"))
	require.False(t, o.run.MatchString("herd"))

	o, err = parseOptions([]string{"-quick", "-rounds", "2"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 2, o.rounds, "what is given overrules -quick")
	require.Equal(t, 300*time.Millisecond, o.slice)
}

func TestOptionsThatMakeNoSense(t *testing.T) {
	for _, args := range [][]string{
		{"-members", "0"}, {"-members", "x"}, {"-herd", ""}, {"-fsync", "maybe"}, {"-run", "("}, {"-peers", "("},
		{"-rounds", "0"}, {"-warm", "-1s"}, {"-ttl", "1s"}, {"stray"}, {"-unknown"},
	} {
		_, err := parseOptions(args, io.Discard)
		require.Error(t, err, "%v", args)
	}
	require.Error(t, run(t.Context(), []string{"-peers", "nobody"}, io.Discard))
}
