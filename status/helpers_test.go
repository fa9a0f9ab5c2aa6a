package status_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/etcdlock/locks/status"
)

// patience bounds what must happen at some time. Nothing is measured by it.
const patience = 60 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// site is a page that is served.
type site struct {
	t      *testing.T
	page   *status.Page
	server *httptest.Server
}

func serve(t *testing.T, client *clientv3.Client, opts ...status.Option) *site {
	t.Helper()
	page := status.New(client, opts...)
	server := httptest.NewServer(page)
	t.Cleanup(server.Close)
	t.Cleanup(page.Close) // before the server waits for its requests
	return &site{t: t, page: page, server: server}
}

// get returns the answer to a request, and its body.
func (s *site) get(path string) (*http.Response, string) {
	s.t.Helper()
	request, err := http.NewRequestWithContext(within(s.t), http.MethodGet, s.server.URL+path, nil)
	require.NoError(s.t, err)
	response, err := s.server.Client().Do(request)
	require.NoError(s.t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return response, string(body)
}

// body returns that of a request that has to succeed.
func (s *site) body(path string) string {
	s.t.Helper()
	response, body := s.get(path)
	require.Equal(s.t, http.StatusOK, response.StatusCode, body)
	return body
}

// message is an event, as the script sees it.
type message struct {
	Version, Title, Head, Foot, Rows string
	Now                              int64
	Order                            []string
}

// stream reads events, and puts them together as the script does.
type stream struct {
	t     *testing.T
	lines *bufio.Reader
	stop  context.CancelFunc

	rows                    map[string]string
	order                   []string
	title, head, foot, last string
	messages                int
}

func (s *site) events(query string) *stream {
	s.t.Helper()
	ctx, stop := context.WithCancel(within(s.t))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+"/events"+query, nil)
	require.NoError(s.t, err)
	response, err := s.server.Client().Do(request)
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		stop()
		_ = response.Body.Close()
	})
	require.Equal(s.t, "text/event-stream", response.Header.Get("Content-Type"))
	require.Equal(s.t, "no", response.Header.Get("X-Accel-Buffering"))
	return newStream(s.t, response.Body, stop)
}

func newStream(t *testing.T, from io.Reader, stop context.CancelFunc) *stream {
	return &stream{t: t, lines: bufio.NewReader(from), stop: stop, rows: map[string]string{}}
}

// next takes in an event. It returns the error that the stream ends with.
func (s *stream) next() error {
	s.t.Helper()
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			return err
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var m message
		require.NoError(s.t, json.Unmarshal([]byte(data), &m))
		s.take(m, strings.Contains(data, `"order"`))
		return nil
	}
}

func (s *stream) take(m message, ordered bool) {
	s.messages++
	s.last = m.Rows
	for _, row := range strings.SplitAfter(m.Rows, "</tr>") {
		if _, rest, ok := strings.Cut(row, `id="`); ok {
			id, _, _ := strings.Cut(rest, `"`)
			s.rows[id] = row
		}
	}
	if ordered {
		s.order = m.Order
	}
	for _, part := range []struct{ to, from *string }{{&s.title, &m.Title}, {&s.head, &m.Head}, {&s.foot, &m.Foot}} {
		if *part.from != "" {
			*part.to = *part.from
		}
	}
}

// html is what the viewer sees.
func (s *stream) html() string {
	var all strings.Builder
	all.WriteString(s.head)
	for _, id := range s.order {
		all.WriteString(s.rows[id])
	}
	return all.String() + s.foot
}

// until takes in events until the viewer sees what is wanted.
func (s *stream) until(what string, sees func(html string) bool) {
	s.t.Helper()
	for s.messages == 0 || !sees(s.html()) {
		require.NoError(s.t, s.next(), "until %s; %s", what, s.html())
	}
}

func (s *stream) shows(text string) {
	s.t.Helper()
	s.until("it shows "+text, func(html string) bool { return strings.Contains(html, text) })
}

func (s *stream) hides(text string) {
	s.t.Helper()
	s.until("it does not show "+text, func(html string) bool { return !strings.Contains(html, text) })
}

// entry is a key in a queue.
type entry struct {
	program, host, label string
	age                  time.Duration
}

// put adds exclusive places to the queue of a lock, as the library does it. They have one lease each.
func put(t *testing.T, client *clientv3.Client, name string, entries ...entry) {
	t.Helper()
	for i, e := range entries {
		lease, err := client.Grant(within(t), 3600)
		require.NoError(t, err)
		value, err := json.Marshal(map[string]any{
			"host": e.host, "pid": 100 + i, "program": e.program, "label": e.label, "since": time.Now().Add(-e.age),
		})
		require.NoError(t, err)
		key := fmt.Sprintf("etcdlock/%s/x%x-0", url.PathEscape(name), int64(lease.ID))
		_, err = client.Put(within(t), key, string(value), clientv3.WithLease(lease.ID))
		require.NoError(t, err)
	}
}

// remove frees a lock.
func remove(t *testing.T, client *clientv3.Client, name string) {
	t.Helper()
	_, err := client.Delete(within(t), "etcdlock/"+url.PathEscape(name)+"/", clientv3.WithPrefix())
	require.NoError(t, err)
}

// inOrder requires that texts come one after the other.
func inOrder(t *testing.T, in string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		_, rest, ok := strings.Cut(in, text)
		require.True(t, ok, "%q is missing, or comes too early", text)
		in = rest
	}
}
