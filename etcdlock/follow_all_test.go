package etcdlock_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

const (
	soon  = 50 * time.Millisecond // between rechecks, where they have to find something
	never = time.Hour
)

// following has what a FollowAll has yielded.
type following struct {
	t      *testing.T
	states chan etcdlock.Queue
	ended  <-chan error
	stop   context.CancelFunc
	latest map[string]etcdlock.Queue // by name; without those that are empty

	complete atomic.Int32 // how many queues it had yielded when it said last that these are all
}

func followAll(t *testing.T, client *clientv3.Client, recheck time.Duration, opts ...etcdlock.Option) *following {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	f := &following{t: t, states: make(chan etcdlock.Queue), stop: stop, latest: make(map[string]etcdlock.Queue)}
	ended := make(chan error, 1)
	f.ended = ended
	go func() {
		defer close(ended)
		yielded := 0
		for q, err := range etcdlock.FollowAll(ctx, client, append(opts, etcdlock.WithRecheck(recheck))...) {
			if err != nil {
				ended <- err // one at most in these tests, and the last
				continue
			}
			if q.Prefix == "" {
				f.complete.Store(int32(yielded))
				continue
			}
			select {
			case f.states <- q:
				yielded++
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		_ = await(t, "the end of it", f.ended)
	})
	return f
}

// next returns the next queue.
func (f *following) next() etcdlock.Queue {
	f.t.Helper()
	return f.take(await(f.t, "a change", f.states))
}

func (f *following) take(q etcdlock.Queue) etcdlock.Queue {
	if f.latest[q.Name] = q; len(q.Places) == 0 && q.Size == 0 {
		delete(f.latest, q.Name)
	}
	return q
}

// until takes what is yielded until the latest states are those that etcd has.
func (f *following) until(client *clientv3.Client) {
	f.t.Helper()
	want := make(map[string]etcdlock.Queue)
	for _, q := range inspectAll(f.t, client) {
		want[q.Name] = q
	}
	for !maps.EqualFunc(want, f.latest, sameQueue) {
		f.next()
	}
}

func sameQueue(a, b etcdlock.Queue) bool {
	return a.Prefix == b.Prefix && a.Holding == b.Holding && a.Size == b.Size && slices.Equal(a.Places, b.Places)
}

func TestFollowAllYieldsEveryQueueAndThenWhatHasChanged(t *testing.T) {
	cluster, client := newCluster(t)
	fill(t, client, 600)
	watches := cluster.Calls("Watch")
	f := followAll(t, cluster.Client(t), never)
	for range 600 {
		f.next()
	}
	require.Len(t, f.latest, 600)
	f.until(client)

	s := newSession(t, client)
	h := lock(t, etcdlock.NewMutex(s, "a/b"))
	held := f.next()
	require.Equal(t, "a/b", held.Name)
	require.EqualValues(t, 600, f.complete.Load())
	require.Equal(t, h.Key(), held.Places[0].Key)
	require.Equal(t, 1, held.Holding)
	unlock(t, h)
	require.Equal(t, etcdlock.Queue{Name: "a/b", Prefix: held.Prefix}, f.next())

	putKey(t, client, "etcdlock/permits!/slot/0/x1-0", "a slot is in no queue")
	putKey(t, client, "etcdlock/00001/below/x1-0", "nor is what lies below one")
	putKey(t, client, "etcdlock/!/epoch/1", "nor a session's epoch")
	putKey(t, client, "elsewhere/00001/x1-0", "")
	semaphore := etcdlock.NewSemaphore(s, "permits", 2)
	unlock(t, lock(t, semaphore))
	for f.latest["permits"].Size != 2 || len(f.latest["permits"].Places) > 0 {
		require.NotEqual(t, "below", f.next().Name)
	}
	require.NoError(t, semaphore.Forget(within(t)))
	require.Equal(t, "permits", f.next().Name)
	require.Len(t, f.latest, 600)
	require.LessOrEqual(t, cluster.Calls("Watch")-watches, int64(2), "one for all; the stream is a call too")
}

func TestFollowAllSaysThatThereIsNothing(t *testing.T) {
	_, client := newCluster(t)
	for q, err := range etcdlock.FollowAll(within(t), client) {
		require.NoError(t, err)
		require.Zero(t, q)
		return
	}
	require.Fail(t, "it yields nothing")
}

// It says so although nothing has changed.
func TestFollowAllSaysThatARefusalIsOver(t *testing.T) {
	cluster, client := newCluster(t)
	putKey(t, client, "etcdlock/orders/x1-0", "")
	var fault *embedtest.Fault
	var yields []string
	for q, err := range etcdlock.FollowAll(within(t), client, etcdlock.WithRecheck(soon)) {
		if err != nil && yields[len(yields)-1] == "refused" {
			fault.Heal()
			continue
		}
		yields = append(yields, q.Name)
		switch {
		case err != nil:
			yields[len(yields)-1] = "refused"
		case len(yields) == 2:
			fault = cluster.Refuse("Range", rpctypes.ErrGRPCPermissionDenied)
		}
		if len(yields) == 4 {
			break
		}
	}
	require.Equal(t, []string{"orders", "", "refused", ""}, yields)
}

// What it has yielded is a state of that moment or later, so a slow loop gets the latest.
func TestASlowLoopSkipsStatesAndMissesNoQueue(t *testing.T) {
	_, client := newCluster(t)
	fill(t, client, 20)
	f := followAll(t, client, never)
	f.next() // and the loop waits with the second
	for i := range 100 {
		putKey(t, client, fmt.Sprintf("etcdlock/%05d/x1-0", i%20), fmt.Sprint(i))
		putKey(t, client, fmt.Sprintf("etcdlock/%05d/x9-0", i%20), fmt.Sprint(i))
	}
	putKey(t, client, "etcdlock/last/x1-0", "")
	yielded := 1
	for len(f.latest["last"].Places) == 0 || f.latest["00019"].Places[0].Value != "99" {
		f.next()
		yielded++
	}
	f.until(client)
	require.Less(t, yielded, 100)
}

// The tests of package follow, and of a queue that is followed, have more troubles.
func TestFollowAllSurvivesTrouble(t *testing.T) {
	for name, tt := range map[string]struct {
		size    int
		recheck time.Duration
		trouble func(t *testing.T, c *embedtest.Cluster, link *embedtest.Link) (over func())
	}{
		"cut connection, and a compaction": {1, never, func(t *testing.T, c *embedtest.Cluster, link *embedtest.Link) func() {
			link.Cut()
			return func() {
				_, err := c.Compact(within(t))
				require.NoError(t, err)
				link.Heal()
			}
		}},
		"restart of all": {3, never, func(t *testing.T, c *embedtest.Cluster, _ *embedtest.Link) func() {
			return func() {
				for _, m := range c.Members() {
					require.NoError(t, m.Restart())
				}
				putKey(t, c.Client(t), "elsewhere", "") // when there is a leader again
			}
		}},
		"swallowed events": {1, soon, func(_ *testing.T, c *embedtest.Cluster, _ *embedtest.Link) func() {
			c.SwallowWatchEvents()
			return func() {}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := embedtest.Start(t, embedtest.WithSize(tt.size))
			theirs, link := c.Link(t)
			client := c.Client(t)
			fill(t, client, 30)
			f := followAll(t, theirs, tt.recheck)
			for range 30 {
				f.next()
			}
			for round := range 3 {
				over := tt.trouble(t, c, link)
				putKey(t, client, "etcdlock/new/x1-0", fmt.Sprint(round))
				remove(t, client, "etcdlock/00002/x1-0")
				putKey(t, client, "etcdlock/00002/x1-0", fmt.Sprint(round))
				remove(t, client, fmt.Sprintf("etcdlock/0000%d/x1-0", 3+3*round%9))
				over()
				f.until(client)
			}
			require.Empty(t, f.ended, "trouble is not reported")
		})
	}
}

// Under load: events are under way while it compares.
func TestFollowAllAgreesWithEtcdAfterAStorm(t *testing.T) {
	cluster, client := newCluster(t)
	watcher := cluster.Client(t)
	f := followAll(t, watcher, soon)
	storm := background(func() error {
		for i := range 400 {
			key := fmt.Sprintf("etcdlock/%d/x%d-0", rand.N(20), 1+rand.N(5))
			op := clientv3.OpPut(key, fmt.Sprint(i))
			if rand.N(3) == 0 {
				op = clientv3.OpDelete(key)
			}
			if _, err := client.Do(t.Context(), op); err != nil {
				return err
			}
		}
		return nil
	})
	for over := false; !over; {
		select {
		case q := <-f.states:
			f.take(q)
		case err := <-storm:
			require.NoError(t, err)
			over = true
		}
	}
	f.until(client)
}

func TestFollowAllFollowsAClusterThatGoesBack(t *testing.T) {
	for name, back := range map[string]func(context.Context, *embedtest.Cluster, *embedtest.Snapshot) error{
		"restored": func(ctx context.Context, c *embedtest.Cluster, s *embedtest.Snapshot) error { return c.Restore(ctx, s) },
		"restored as another": func(ctx context.Context, c *embedtest.Cluster, s *embedtest.Snapshot) error {
			return c.Restore(ctx, s, embedtest.NewClusterID())
		},
		"wiped": func(ctx context.Context, c *embedtest.Cluster, _ *embedtest.Snapshot) error { return c.Wipe(ctx) },
	} {
		for further, writes := range map[string]struct{ before, after int }{
			"less far": {0, 0}, "further than before": {20, 0}, "under load": {20, 100},
		} {
			t.Run(name+", "+further, func(t *testing.T) {
				cluster, client := newCluster(t)
				putKey(t, client, "etcdlock/old/x1-0", "")
				f := followAll(t, cluster.Client(t), 2*soon)
				require.Equal(t, "old", f.next().Name)
				snapshot, err := cluster.Snapshot(within(t))
				require.NoError(t, err)
				for i := range 5 {
					putKey(t, client, fmt.Sprintf("etcdlock/%d/x1-0", i), "")
				}
				f.until(client)
				looks := cluster.Hold("Range") // until all is done
				require.NoError(t, back(within(t), cluster, snapshot))
				for range writes.before {
					putKey(t, client, "etcdlock/load/x1-0", "")
				}
				looks.Heal()
				for range writes.after {
					putKey(t, client, "etcdlock/load/x1-0", "")
				}
				f.until(client)
				putKey(t, client, "etcdlock/next/x1-0", "")
				f.until(client)
			})
		}
	}
}

func TestFollowAllSaysThatItIsRefusedAndGoesOn(t *testing.T) {
	for _, method := range []string{"Range", "Watch"} {
		t.Run(method, func(t *testing.T) {
			cluster, client := newCluster(t)
			fault := cluster.Refuse(method, rpctypes.ErrGRPCPermissionDenied)
			refusals, seen, readAgain := 0, false, false
			for q, err := range etcdlock.FollowAll(within(t), client) {
				if err != nil {
					require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
					require.Equal(t, 1, strings.Count(err.Error(), "must not read"), err.Error())
					require.Zero(t, q)
					if refusals++; refusals == 3 {
						fault.Heal()
						putKey(t, client, "etcdlock/orders/x1-0", "")
					}
					continue
				}
				require.GreaterOrEqual(t, refusals, 3, "%v", q)
				if readAgain = readAgain || q.Prefix == ""; q.Name == "orders" {
					seen = true
				}
				if seen && readAgain {
					break
				}
			}
			require.True(t, seen && readAgain)
		})
	}
}

func TestFollowAllEndsWithItsContextItsLoopOrItsClient(t *testing.T) {
	_, client := newCluster(t)
	fill(t, client, 3)
	for _, err := range etcdlock.FollowAll(t.Context(), client) {
		require.NoError(t, err)
		break
	}
	for q, err := range etcdlock.FollowAll(cancelled(), client) {
		require.Fail(t, "its context is over", "%v %v", q, err)
	}
	for _, name := range []string{"", "\xff"} {
		for _, opts := range [][]etcdlock.Option{{etcdlock.WithNamespace(name)}, {etcdlock.WithNamespace(name), etcdlock.AtPrefix()}} {
			for _, err := range etcdlock.FollowAll(t.Context(), client, opts...) {
				require.ErrorIs(t, err, etcdlock.ErrInvalidName)
				break
			}
		}
	}
	f := followAll(t, client, never)
	f.next()
	f.stop()
	require.NoError(t, await(t, "the end", f.ended))

	for what, unconfirmed := range map[string]bool{"while it watches": false, "before its watch is confirmed": true} {
		t.Run(what, func(t *testing.T) {
			cluster, other := newCluster(t)
			if unconfirmed {
				cluster.LoseReply("Watch", embedtest.When(func(message any) bool {
					answer, ok := message.(*etcdserverpb.WatchResponse)
					return ok && answer.Created
				}))
			}
			fill(t, other, 3)
			closing, err := cluster.NewClient()
			require.NoError(t, err)
			watches := cluster.Calls("Watch")
			f := followAll(t, closing, never)
			for range 3 {
				f.next()
			}
			awaitWatch(t, cluster, watches)
			require.NoError(t, closing.Close())
			require.ErrorContains(t, await(t, "the end", f.ended), "the client was closed")
		})
	}
}

func TestFollowAllLooksWhereItsOptionsAndItsClientSay(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	root, tenant := cluster.Client(t), tenantOf(t, cluster, "tenant/")
	for what, c := range map[string]struct {
		*following
		client    *clientv3.Client
		key, name string
	}{
		"shop":              {followAll(t, root, never, etcdlock.WithNamespace("shop")), root, "shop/orders/x1-0", "orders"},
		"below shop":        {followAll(t, root, never, etcdlock.AtPrefix(), etcdlock.WithNamespace("shop")), root, "shop/a/b/x1-0", "shop/a/b"},
		"all of a tenant":   {followAll(t, tenant, never, etcdlock.AtPrefix()), tenant, "orders/x1-0", "orders"},
		"a tenant's orders": {followAll(t, tenant, soon), tenant, "etcdlock/a%2Fb/x1-0", "a/b"},
	} {
		putKey(t, c.client, c.key, "")
		for c.next().Name != c.name {
		}
		require.Equal(t, c.key, c.latest[c.name].Places[0].Key, what)
		remove(t, c.client, c.key)
		for len(c.next().Places) > 0 {
		}
		require.NotContains(t, c.latest, c.name, what)
	}
}
