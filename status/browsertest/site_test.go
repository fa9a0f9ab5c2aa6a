package browsertest

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/status"
)

// site is a page that is served.
type site struct {
	page   *status.Page
	server *httptest.Server
}

func serve(t *testing.T, client *clientv3.Client, opts ...status.Option) *site {
	t.Helper()
	page := status.New(client, opts...)
	server := httptest.NewServer(page)
	t.Cleanup(server.Close)
	t.Cleanup(page.Close)
	return &site{page, server}
}

func (s *site) url() string { return s.server.URL }

// entry is a key in a queue.
type entry struct {
	program, host, label string
	age                  time.Duration
}

// put adds exclusive places to the queue of a lock, as the library does it. They have one lease each.
func put(t *testing.T, client *clientv3.Client, name string, entries ...entry) {
	t.Helper()
	for i, e := range entries {
		lease, err := client.Grant(t.Context(), 3600)
		require.NoError(t, err)
		value, err := json.Marshal(map[string]any{
			"host": e.host, "pid": 1200 + 97*i, "program": e.program, "label": e.label, "since": time.Now().Add(-e.age),
		})
		require.NoError(t, err)
		key := fmt.Sprintf("etcdlock/%s/x%x-0", url.PathEscape(name), int64(lease.ID))
		_, err = client.Put(t.Context(), key, string(value), clientv3.WithLease(lease.ID))
		require.NoError(t, err)
	}
}

// remove frees a lock.
func remove(t *testing.T, client *clientv3.Client, name string) {
	t.Helper()
	_, err := client.Delete(t.Context(), "etcdlock/"+url.PathEscape(name)+"/", clientv3.WithPrefix())
	require.NoError(t, err)
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	return n
}
