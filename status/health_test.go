package status_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
	"github.com/etcdlock/locks/status"
)

func ask(h http.Handler) (code int, body string) {
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/", nil))
	return answer.Code, answer.Body.String()
}

// becomes asks until the answer has the code, and returns the answers before.
func becomes(t *testing.T, h http.Handler, want int) (before []int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		code, body := ask(h)
		if code == want {
			return before
		}
		require.True(t, time.Now().Before(deadline), "%d %s", code, body)
		before = append(before, code)
	}
}

func TestHealthFailsAfterATTLWithoutASession(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client, link := cluster.Link(t)
	sessions := session.Keep(client, session.WithTTL(2*time.Second))
	h := status.Health(sessions)
	code, body := ask(h)
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ok\n", body, "it asks for a session")
	grants := cluster.Calls("LeaseGrant")
	for range 10 {
		require.Empty(t, becomes(t, h, http.StatusOK))
	}
	require.Equal(t, grants, cluster.Calls("LeaseGrant"), "that goes on")

	s, ok := sessions.Current()
	require.True(t, ok)
	link.Blackhole()
	<-s.Done()
	code, body = ask(h)
	require.Equal(t, http.StatusOK, code, "a TTL has to pass")
	require.Contains(t, body, "no session with etcd")
	becomes(t, h, http.StatusServiceUnavailable)
	require.False(t, time.Now().Before(s.Deadline().Add(2*time.Second)), "not before that")
	link.Heal()
	for _, code := range becomes(t, h, http.StatusOK) {
		require.Equal(t, http.StatusServiceUnavailable, code)
	}
	require.NoError(t, sessions.Close(context.Background()))
	code, _ = ask(h)
	require.Equal(t, http.StatusServiceUnavailable, code, "it takes no more locks")
}

func TestHealthDoesNotDependOnLeading(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	leader, standby := session.Keep(cluster.Client(t)), session.Keep(cluster.Client(t))
	t.Cleanup(func() { _, _ = leader.Close(context.Background()), standby.Close(context.Background()) })
	_, err := etcdlock.NewElection(leader, "controller").Campaign(within(t), "one")
	require.NoError(t, err)
	for _, keeper := range []*session.Keeper{leader, standby} {
		code, _ := ask(status.Health(keeper))
		require.Equal(t, http.StatusOK, code)
	}
}

func TestLeaderAnswersWithTheLeadersValue(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client, link := cluster.Link(t)
	sessions := session.Keep(cluster.Client(t))
	t.Cleanup(func() { _ = sessions.Close(context.Background()) })
	h := status.Leader(etcdlock.NewElection(session.Keep(client), "controller"))
	code, body := ask(h)
	require.Equal(t, http.StatusOK, code)
	require.JSONEq(t, `{"name": ""}`, body, "a vacancy")

	term, err := etcdlock.NewElection(sessions, "controller").Campaign(within(t), "10.0.0.7:8080")
	require.NoError(t, err)
	_, body = ask(h)
	require.Contains(t, body, `"name": "10.0.0.7:8080"`)
	require.Contains(t, body, term.Key())
	require.NoError(t, term.Resign(within(t)))
	_, body = ask(h)
	require.JSONEq(t, `{"name": ""}`, body)

	link.Blackhole()
	code, _ = ask(h)
	require.Equal(t, http.StatusServiceUnavailable, code)
	link.Heal()
}
