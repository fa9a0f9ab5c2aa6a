package embedtest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// testPatience bounds what must happen at some time; nothing is measured by it.
const testPatience = 20 * time.Second

// watchers are etcd's own of the client and ours, which must tell the same.
func watchers(t *testing.T, client *clientv3.Client) map[string]clientv3.Watcher {
	ours := newWatcher(etcdserverpb.NewWatchClient(client.ActiveConnection()))
	t.Cleanup(func() { _ = ours.Close() })
	return map[string]clientv3.Watcher{"etcd's": client.Watcher, "ours": ours}
}

// both has each watcher tell what it hears, event by event and in words, until it has heard n
// things or its channel is closed. Then do has happened.
func both(ctx context.Context, t *testing.T, client *clientv3.Client, n int, key string, do func(), opts ...clientv3.OpOption) []string {
	t.Helper()
	heard := map[string]<-chan []string{}
	for name, w := range watchers(t, client) {
		told := make(chan []string, 1)
		heard[name] = told
		events := w.Watch(ctx, key, opts...)
		go func() { told <- listen(events, n) }()
	}
	do()
	all := map[string][]string{}
	for name, told := range heard {
		select {
		case all[name] = <-told:
		case <-time.After(testPatience):
			require.FailNow(t, name+" watcher does not tell enough")
		}
	}
	require.Equal(t, all["etcd's"], all["ours"])
	return all["ours"]
}

func listen(events clientv3.WatchChan, n int) (told []string) {
	for len(told) < n {
		response, ok := <-events
		if !ok {
			return append(told, "closed")
		}
		if response.Created {
			told = append(told, "created")
		}
		if err := response.Err(); err != nil {
			// Only etcd's watcher can give an error a code that is not one of etcd's errors.
			text := strings.TrimPrefix(err.Error(), "rpc error: code = FailedPrecondition desc = ")
			told = append(told, fmt.Sprintf("error %s, compacted at %d", text, response.CompactRevision))
		}
		for _, e := range response.Events {
			line := fmt.Sprintf("%v %s=%s", e.Type, e.Kv.Key, e.Kv.Value)
			if e.PrevKv != nil {
				line += " was " + string(e.PrevKv.Value)
			}
			told = append(told, line)
		}
	}
	return told
}

func TestBothWatchersTellTheSameEvents(t *testing.T) {
	for name, tt := range map[string]struct {
		key  string
		opts []clientv3.OpOption
		told []string
	}{
		"one key": {key: "a/1", told: []string{"PUT a/1=x", "DELETE a/1=", "PUT a/1=z"}},
		"created": {key: "a/1", opts: []clientv3.OpOption{clientv3.WithCreatedNotify()},
			told: []string{"created", "PUT a/1=x", "DELETE a/1=", "PUT a/1=z"}},
		"prefix, no puts": {key: "a/", opts: []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithFilterPut()},
			told: []string{"DELETE a/1=", "DELETE a/2="}},
		"range, no deletions": {key: "a/1", opts: []clientv3.OpOption{clientv3.WithRange("a/2"), clientv3.WithFilterDelete()},
			told: []string{"PUT a/1=x", "PUT a/1=z"}},
		"from a key": {key: "a/2", opts: []clientv3.OpOption{clientv3.WithFromKey()},
			told: []string{"PUT a/2=y", "PUT b=y", "DELETE a/2="}},
		"values before": {key: "a/1", opts: []clientv3.OpOption{clientv3.WithPrevKV()},
			told: []string{"PUT a/1=x was 0", "DELETE a/1= was x", "PUT a/1=z"}},
		"the past too": {key: "a/1", opts: []clientv3.OpOption{clientv3.WithRev(2), clientv3.WithCreatedNotify()},
			told: []string{"created", "PUT a/1=0", "PUT a/1=x", "DELETE a/1=", "PUT a/1=z"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := Start(t)
			client := c.Client(t)
			ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(t.Context()))
			defer cancel()
			do := func(ops ...clientv3.Op) {
				_, err := client.Txn(ctx).Then(ops...).Commit()
				require.NoError(t, err)
			}
			do(clientv3.OpPut("a/1", "0"))
			told := both(ctx, t, client, len(tt.told), tt.key, func() {
				do(clientv3.OpPut("a/1", "x"), clientv3.OpPut("a/2", "y"), clientv3.OpPut("b", "y"))
				do(clientv3.OpDelete("a/", clientv3.WithPrefix()))
				do(clientv3.OpPut("a/1", "z"))
			}, tt.opts...)
			require.Equal(t, tt.told, told)
		})
	}
}

func TestBothWatchersEndTheSameWay(t *testing.T) {
	t.Run("compacted", func(t *testing.T) {
		c := Start(t)
		client := c.Client(t)
		for range 3 {
			_, err := client.Put(t.Context(), "k", "v")
			require.NoError(t, err)
		}
		at, err := c.Compact(t.Context())
		require.NoError(t, err)
		told := both(t.Context(), t, client, 3, "k", func() {}, clientv3.WithRev(1), clientv3.WithCreatedNotify())
		require.Equal(t, []string{"created", fmt.Sprintf("error %v, compacted at %d", rpctypes.ErrCompacted, at), "closed"}, told)
	})
	t.Run("not permitted", func(t *testing.T) {
		c := Start(t, WithAuth("secret", User{Name: "alice", Password: "a"}))
		told := both(t.Context(), t, c.ClientAs(t, "alice"), 2, "k", func() {}, clientv3.WithCreatedNotify())
		require.Contains(t, told[0], "permission denied")
	})
	t.Run("no leader", func(t *testing.T) {
		c := Start(t, WithSize(3))
		m := c.Members()[0]
		told := both(clientv3.WithRequireLeader(t.Context()), t, m.Client(t), 3, "k", m.Isolate, clientv3.WithCreatedNotify())
		require.Equal(t, []string{"created", fmt.Sprintf("error %v, compacted at 0", rpctypes.ErrNoLeader), "closed"}, told)
	})
	t.Run("context over", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		client := Start(t).Client(t)
		require.Equal(t, []string{"created", "closed"}, both(ctx, t, client, 2, "k", cancel, clientv3.WithCreatedNotify()))
	})
	t.Run("closed", func(t *testing.T) {
		for name, w := range watchers(t, Start(t).Client(t)) {
			before := w.Watch(t.Context(), "k")
			require.NoError(t, w.Close())
			require.Equal(t, []string{"closed"}, listen(before, 1), name)
			require.Equal(t, []string{"closed"}, listen(w.Watch(t.Context(), "k"), 1), name)
		}
	})
}

// Neither loses an event or tells one twice when its member ends and comes back.
func TestBothWatchersGoOnAfterARestart(t *testing.T) {
	c := Start(t)
	client, m := c.Client(t), c.Members()[0]
	put := func(value string) {
		_, err := client.Put(t.Context(), "k", value)
		require.NoError(t, err)
	}
	put("0")
	told := both(t.Context(), t, client, 5, "k", func() {
		for _, value := range []string{"1", "2", "3", "4"} {
			put(value)
			require.NoError(t, m.Restart())
		}
		put("5")
	})
	require.Equal(t, []string{"PUT k=1", "PUT k=2", "PUT k=3", "PUT k=4", "PUT k=5"}, told)
}

// The watch must not wait for a caller that does not receive.
func TestNothingIsLostOfWhatNobodyTakes(t *testing.T) {
	c := Start(t)
	client := c.Client(t)
	w := newWatcher(etcdserverpb.NewWatchClient(client.ActiveConnection()))
	defer w.Close()
	events := w.Watch(t.Context(), "k")
	const n = 500
	for i := range n {
		_, err := client.Put(t.Context(), "k", fmt.Sprint(i))
		require.NoError(t, err)
	}
	told := listen(events, n)
	require.Len(t, told, n)
	require.Equal(t, fmt.Sprintf("PUT k=%d", n-1), told[n-1])
}
