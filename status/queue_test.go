package status_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
	"github.com/etcdlock/locks/status"
)

func TestOneLockIsShownWithItsLeases(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	sessions := session.Keep(client)
	t.Cleanup(func() { _ = sessions.Close(context.Background()) })
	h, err := etcdlock.NewSemaphore(sessions, "pool", 5).Acquire(within(t), 3)
	require.NoError(t, err)
	put(t, client, "a/b", entry{program: "first", host: "h", label: "why"}, entry{program: "second", host: "h"}, entry{program: "third", host: "h"})

	s := serve(t, client)
	page := s.body("/lock?name=a/b")
	inOrder(t, page, "<title>a/b</title>", "<bdi>a/b</bdi>", "<dd>mutex</dd>", "<dd>1</dd>", "<dd>2</dd>", "etcdlock/a%2Fb/",
		"holds", "first", "why", "exclusive", "59m ", "waits 1", "second", "waits 2", "third", "api/lock?name=a%2fb")
	page = s.body("/lock?name=pool")
	inOrder(t, page, "semaphore of 5", "<dd>1 of 5</dd>", "holds", "permit ×3", fmt.Sprint(h.Token()), fmt.Sprintf("lease %x", leaseOf(t, client, h.Key())))
}

func leaseOf(t *testing.T, client *clientv3.Client, key string) int64 {
	t.Helper()
	answer, err := client.Get(within(t), key)
	require.NoError(t, err)
	require.Len(t, answer.Kvs, 1)
	return answer.Kvs[0].Lease
}

func TestAStreamOfOneLockFollowsItsLine(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	put(t, client, "orders", entry{program: "first", host: "h"}, entry{program: "second", host: "h"})
	s := serve(t, client)
	events := s.events("?name=orders")
	events.shows("second")
	answer, err := client.Get(within(t), "etcdlock/orders/", clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	require.NoError(t, err)
	_, err = client.Delete(within(t), string(answer.Kvs[0].Key))
	require.NoError(t, err)
	events.hides("first")
	require.Len(t, events.order, 1)
	require.Contains(t, events.html(), "holds")
	put(t, client, "orders", entry{program: "third", host: "h"})
	events.shows("third")
	require.Contains(t, events.html(), "waits 1")
}

// A holder that is gone, or hangs, does not renew its lease.
func TestALeaseThatIsNotRenewedIsMarked(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	lease, err := client.Grant(within(t), 6)
	require.NoError(t, err)
	_, err = client.Put(within(t), "etcdlock/orders/x1-0", "", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	sessions := session.Keep(client, session.WithTTL(6e9))
	t.Cleanup(func() { _ = sessions.Close(context.Background()) })
	_, err = etcdlock.NewMutex(sessions, "renewed").Lock(within(t))
	require.NoError(t, err)
	s := serve(t, client)
	renewed := s.events("?name=renewed")
	renewed.shows("holds")
	s.events("?name=orders").shows("not renewed")
	require.NoError(t, renewed.next())
	require.NotContains(t, renewed.html(), "not renewed")
}

func TestTheJSONIsThatOfTheQueues(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	put(t, client, "stuck", entry{program: "p", host: "h"}, entry{program: "q", host: "h", age: 1e13})
	put(t, client, "a", entry{program: "p", host: "h", label: "<&>"})
	put(t, client, "b/c", entry{program: "p", host: "h"})
	var want []status.Lock
	for q, err := range etcdlock.InspectAll(within(t), client) {
		require.NoError(t, err)
		want = append(want, status.Summarize(q))
	}
	s := serve(t, client)
	response, body := s.get("/api/")
	require.Equal(t, "application/json", response.Header.Get("Content-Type"))
	require.Contains(t, body, `"<&>"`)
	var locks []status.Lock
	require.NoError(t, json.Unmarshal([]byte(body), &locks))
	require.Equal(t, want, locks, "in the order of their keys")
	require.NoError(t, json.Unmarshal([]byte(s.body("/api/?q=B")), &locks))
	require.Len(t, locks, 1)

	q, err := etcdlock.Inspect(within(t), client, "stuck")
	require.NoError(t, err)
	var queue status.Queue
	require.NoError(t, json.Unmarshal([]byte(s.body("/api/lock?name=stuck")), &queue))
	require.Equal(t, withoutTTLs(status.Describe(q)), withoutTTLs(queue))
	require.JSONEq(t, `{"name": "none", "prefix": "", "holders": [], "waiters": []}`, s.body("/api/lock?name=none"))
}

func withoutTTLs(q status.Queue) status.Queue {
	for _, places := range [][]status.Place{q.Holders, q.Waiters} {
		for i := range places {
			places[i].TTL = 0
		}
	}
	return q
}
