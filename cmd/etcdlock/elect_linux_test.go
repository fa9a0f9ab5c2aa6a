package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const lead = `trap 'echo stopped; exit 3' TERM; echo "leading $ETCDLOCK_TOKEN"; while :; do sleep 0.02; done`

func TestElectEndsWithTheCommandsCode(t *testing.T) {
	t.Parallel()
	for _, code := range []int{0, 5} {
		r := start(t, "elect", name(t), "sh", "-c", "exit "+string(rune('0'+code)))
		require.Equal(t, code, r.code())
	}
	r := start(t, "elect", name(t), "sh", "-c", lead)
	r.says("leading")
	r.signal(syscall.SIGTERM)
	require.Equal(t, 3, r.code())
	require.Empty(t, keys(t, name(t)))
}

func TestElectStartsTheCommandAnewInEachTerm(t *testing.T) {
	t.Parallel()
	r := start(t, "elect", name(t), "sh", "-c", lead)
	r.says("leading")
	remove(t, name(t))
	r.says("stopped")
	eventually(t, "a second term", func() bool { return strings.Count(r.out.String(), "leading") == 2 })
	require.Contains(t, r.errors.String(), "lost")
	r.signal(syscall.SIGTERM)
	require.Equal(t, 3, r.code())
}

func TestElectCandidateThatGetsASignalDoesNotLead(t *testing.T) {
	t.Parallel()
	leader := start(t, "elect", name(t), "sh", "-c", lead)
	leader.says("leading")
	next := start(t, "elect", name(t), "sh", "-c", lead)
	inLine(t, name(t), 2)
	next.signal(syscall.SIGTERM)
	require.Equal(t, 143, next.code())
	require.Empty(t, next.out.String())
	inLine(t, name(t), 1)
}

func TestElectListensToLeaders(t *testing.T) {
	t.Parallel()
	listener := start(t, "elect", "--listen", name(t))
	first := start(t, "elect", "--id", "first", name(t))
	listener.says("first\n")
	preferred := start(t, "elect", "--id", "preferred", "--priority", "1", name(t))
	inLine(t, name(t), 2)
	first.says(name(t)) // it knows, too
	first.signal(syscall.SIGTERM)
	require.Zero(t, first.code(), "it has led until a signal")
	listener.says("preferred\n")
	preferred.says(name(t))
	preferred.signal(syscall.SIGTERM)
	require.Zero(t, preferred.code())
	eventually(t, "a vacancy", func() bool { return strings.HasSuffix(listener.out.String(), "preferred\n\n") })
	listener.signal(syscall.SIGINT)
	require.Zero(t, listener.code())
}

func TestElectGivesUpTheTermWhenTheHealthCheckFails(t *testing.T) {
	t.Parallel()
	sick := filepath.Join(t.TempDir(), "sick")
	r := start(t, "elect", "--health", "! test -e "+sick, "--every", "0.5", name(t), "sh", "-c", lead)
	r.says("leading")
	require.NoError(t, os.WriteFile(sick, nil, 0o600))
	r.says("stopped")
	r.complains("unhealthy")
	inLine(t, name(t), 0)
	terms := func() int { return strings.Count(r.out.String(), "leading") }
	before := terms() // a check that was slow has ended one, too
	require.NoError(t, os.Remove(sick))
	eventually(t, "another term", func() bool { return terms() > before })
}

func TestElectSaysThatTheHealthCheckKeepsItFromStanding(t *testing.T) {
	t.Parallel()
	sick := filepath.Join(t.TempDir(), "sick")
	require.NoError(t, os.WriteFile(sick, nil, 0o600))
	r := start(t, "elect", "--health", "! test -e "+sick, "--every", "1", name(t), "sh", "-c", lead)
	r.complains("the health check returned 1: no candidate until it returns 0")
	require.NoError(t, os.Remove(sick))
	r.says("leading")
	require.Equal(t, 1, strings.Count(r.errors.String(), "health check"))
}

func TestElectSaysThatTheHealthCheckDoesNotReturn(t *testing.T) {
	t.Parallel()
	well := filepath.Join(t.TempDir(), "well")
	r := start(t, "elect", "--health", "test -e "+well+" || sleep 1000", "--every", "0.2", name(t), "sh", "-c", lead)
	r.complains("the health check has not returned within 200ms: no candidate until it returns 0")
	require.NoError(t, os.WriteFile(well, nil, 0o600))
	r.says("leading")
}

func TestElectServesTheLeader(t *testing.T) {
	t.Parallel()
	address := ownAddress()
	start(t, "elect", "--id", "me", "--http", address, name(t), "sh", "-c", lead).says("leading")

	get := func(path string) (int, string) {
		answer, err := http.Get("http://" + address + path)
		if err != nil {
			return 0, err.Error()
		}
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(body)
	}
	var leader leaderJSON
	eventually(t, "the leader", func() bool {
		code, body := get("/")
		return code == http.StatusOK && json.Unmarshal([]byte(body), &leader) == nil && leader.Name == "me"
	})
	require.True(t, leader.Self)
	require.Positive(t, leader.Token)
	code, body := get("/healthz")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ok\n", body)
	require.Equal(t, 64, start(t, "elect", "--http", address, name(t)+"-2", "true").code(), "the address is in use")
}
