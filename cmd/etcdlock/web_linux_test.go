package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/status"
)

var pageAddress = regexp.MustCompile(`http://\S+/`)

// web serves a page, and returns its address.
func web(t *testing.T, args ...string) (r *tool, url string) {
	t.Helper()
	r = start(t, append([]string{"web", "--http", "127.0.0.1:0"}, args...)...)
	r.complains("locks at ")
	return r, pageAddress.FindString(r.errors.String())
}

func TestWebServesWhatLsAndInspectPrint(t *testing.T) {
	t.Parallel()
	namespace := []string{"--namespace", name(t)}
	for _, args := range [][]string{{"run", "--label", "<b>", "orders/1"}, {"run", "--limit", "3", "pool"}, {"elect", "--id", "me", "leader"}} {
		start(t, append(namespace, args...)...).says(name(t))
	}
	r, url := web(t, append(namespace, "--title", "Mine")...)
	_, page := get(t, url)
	require.Contains(t, page, "<h1>Mine</h1>")
	require.Contains(t, page, "orders/1")

	ls := start(t, append(namespace, "ls", "-o", "json")...)
	require.Zero(t, ls.code())
	code, list := get(t, url+"api/")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, ls.out.String(), list)

	inspect := start(t, append(namespace, "inspect", "-o", "json", "orders/1")...)
	require.Zero(t, inspect.code())
	_, queue := get(t, url+"api/lock?name=orders/1")
	ttl := regexp.MustCompile(`"ttl": \d+`)
	require.Equal(t, ttl.ReplaceAllString(inspect.out.String(), ""), ttl.ReplaceAllString(queue, ""))

	answer, err := http.Get(url + "events")
	require.NoError(t, err)
	defer answer.Body.Close()
	events := bufio.NewReader(answer.Body)
	_, err = events.ReadString('\n')
	require.NoError(t, err)
	r.signal(syscall.SIGTERM)
	require.Zero(t, r.code(), "a viewer does not keep it")
	require.Equal(t, 1, strings.Count(r.errors.String(), "\n"), "the address is all that there is to say")
}

// A page of another site whose name leads to this machine must not read it.
func TestWebAnswersForThisMachineOnly(t *testing.T) {
	t.Parallel()
	_, url := web(t, "--allow-host", "locks.example.com")
	for host, want := range map[string]int{
		"localhost": 200, "localhost:8379": 200, "127.0.0.1": 200, "[::1]:80": 200, "[::1]": 200, "locks.example.com": 200, "locks.example.com:443": 200,
		"example.com": 403, "127.0.0.1.example.com:80": 403, "10.0.0.1": 403,
	} {
		request, err := http.NewRequestWithContext(within(t), http.MethodGet, url+"style.css", nil)
		require.NoError(t, err)
		request.Host = host
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, want, answer.StatusCode, host)
	}
}

func TestWebShowsQueuesAtPrefixes(t *testing.T) {
	t.Parallel()
	_, err := shared.Client(t).Put(within(t), name(t)+"/a/1f", "etcdctl's")
	require.NoError(t, err)
	_, url := web(t, "--prefix")
	_, text := get(t, url+"api/?q="+name(t))
	var all []status.Lock
	require.NoError(t, json.Unmarshal([]byte(text), &all))
	require.Len(t, all, 1)
	require.Equal(t, "etcdctl's", all[0].First.Value)
}

func TestWebSaysWhatIsWrongWithItsAddress(t *testing.T) {
	t.Parallel()
	require.Equal(t, exitMistake, start(t, "web", "--http", "nowhere").code())
	open := start(t, "web", "--http", "0.0.0.0:0")
	open.complains("does not authenticate")
}
