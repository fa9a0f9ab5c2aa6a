package sqlfence_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/sqlfence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, next http.HandlerFunc) *httptest.Server {
	fence := new(etcdlock.Fence)
	handler := sqlfence.Handler(next, func(r *http.Request) *etcdlock.Fence {
		if r.Method == http.MethodGet {
			return nil
		}
		return fence
	})
	server := httptest.NewServer(handler)
	t.Cleanup(func() { server.Close(); http.DefaultClient.CloseIdleConnections() })
	return server
}

func ask(t *testing.T, method, url, token string) (status int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	if token != "" {
		r.Header.Set(sqlfence.TokenHeader, token)
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, strings.TrimSpace(string(body))
}

func TestAHandlerRefusesStaleTokens(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "done") })
	for _, tt := range []struct {
		method, token string
		status        int
		text          string
	}{
		{http.MethodPut, "7", http.StatusOK, "done"},
		{http.MethodPut, "7", http.StatusOK, "done"},
		{http.MethodPut, "6", http.StatusConflict, "etcdlock: stale token: 6, and 7 has been admitted"},
		{http.MethodPut, "8", http.StatusOK, "done"},
		{http.MethodPut, "7", http.StatusConflict, "etcdlock: stale token: 7, and 8 has been admitted"},
		{http.MethodPut, "", http.StatusBadRequest, "the header Etcdlock-Token must be a fencing token"},
		{http.MethodPut, "0x9", http.StatusBadRequest, "the header Etcdlock-Token must be a fencing token"},
		{http.MethodPut, "-1", http.StatusConflict, "etcdlock: stale token: -1, and 8 has been admitted"},
		{http.MethodGet, "", http.StatusOK, "done"},
		{http.MethodGet, "1", http.StatusOK, "done"},
	} {
		status, text := ask(t, tt.method, server.URL, tt.token)
		require.Equal(t, tt.status, status, tt)
		require.Equal(t, tt.text, text)
	}
}

// A request of a later holder begins when none of an earlier one is under way.
func TestAHandlerRunsOneRequestOfAFenceAtATime(t *testing.T) {
	entered, leave := make(chan string), make(chan struct{})
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		entered <- r.Header.Get(sqlfence.TokenHeader)
		<-leave
	})
	var asking sync.WaitGroup
	for token := range 3 {
		asking.Go(func() { ask(t, http.MethodPut, server.URL, fmt.Sprint(token+1)) })
	}
	<-entered
	asking.Go(func() {
		status, _ := ask(t, http.MethodGet, server.URL, "")
		require.Equal(t, http.StatusOK, status)
	})
	require.Empty(t, <-entered, "what is not fenced does not wait, and nothing else has entered")
	leave <- struct{}{}
	close(leave)
	done := make(chan struct{})
	go func() { asking.Wait(); close(done) }()
	for {
		select {
		case <-entered:
		case <-done:
			return
		}
	}
}

func TestMisuseIsReported(t *testing.T) {
	require.PanicsWithValue(t, "sqlfence: Handler needs a handler and a function that returns the fence",
		func() { sqlfence.Handler(nil, nil) })
	require.PanicsWithValue(t, "sqlfence: a Dialect is SQLite, Postgres or MySQL",
		func() { sqlfence.Schema(sqlfence.Dialect{}) })
	require.PanicsWithValue(t, "sqlfence: a Dialect is SQLite, Postgres or MySQL",
		func() { _ = sqlfence.Admit(context.Background(), nil, sqlfence.Dialect{}, "a", 1) })
}
