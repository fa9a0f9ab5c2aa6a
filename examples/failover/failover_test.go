package main

import (
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/examples/internal/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m, program) }

func TestTheLockOutlivesAnyMemberAndNobodyHasItWithoutAMajority(t *testing.T) {
	// A longer TTL than the program's: a slow machine may take its time to choose a leader.
	out := stagetest.Play(t, "-ttl", "3s")

	var killed []string
	for _, match := range regexp.MustCompile(`KILL   (m\d)(,|\n)`).FindAllStringSubmatch(out, -1) {
		killed = append(killed, match[1])
	}
	require.Len(t, killed, 3)
	slices.Sort(killed)
	require.Equal(t, []string{"m0", "m1", "m2"}, killed)
	require.Regexp(t, `KILL .*, to which alice's renewals go`, out)
	require.Regexp(t, `KILL .*, the leader`, out)
	require.Len(t, regexp.MustCompile(`alice  renews through m\d`).FindAllString(out, -1), 3)

	require.Regexp(t, `bob    h\.Done\(\) closes: etcdlock: lost`, out)
	require.Regexp(t, `his deadline, \d+\.\d\d s before the lease could have run out`, out)
	require.Contains(t, out, "alice  TryLock, given 300ms: context deadline exceeded")
	require.Regexp(t, `(?s)START .*START .*alice  holds the lock .*refused.*bob    holds the lock`, out)
}
