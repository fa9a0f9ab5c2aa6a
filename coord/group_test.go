package coord_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/coord"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// shown is what a list of members says, without tokens.
func shown(peers []coord.Peer) (members []string) {
	for _, p := range peers {
		members = append(members, p.ID+"="+p.Value)
	}
	return members
}

func TestMembersAreInTheOrderInWhichTheyJoined(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := limited(t)
	g := coord.NewGroup(keep(t, client), "workers")
	peers, err := g.Members(ctx)
	require.NoError(t, err)
	require.Empty(t, peers)

	var members []*coord.Member
	for _, id := range []string{"c", "a/b", "b!"} {
		m, err := g.Join(ctx, id, "value of "+id)
		require.NoError(t, err)
		require.Equal(t, id, m.ID())
		members = append(members, m)
	}
	peers, err = coord.NewGroup(keep(t, client), "workers").Members(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"c=value of c", "a/b=value of a/b", "b!=value of b!"}, shown(peers))
	require.Equal(t, members[1].Token(), peers[1].Token)

	require.NoError(t, members[0].Set(ctx, "another"))
	require.NoError(t, members[1].Leave(ctx))
	require.NoError(t, members[1].Leave(ctx))
	require.ErrorIs(t, members[1].Err(), etcdlock.ErrUnlocked)
	require.ErrorIs(t, members[1].Set(ctx, "late"), etcdlock.ErrUnlocked)
	peers, err = g.Members(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"c=another", "b!=value of b!"}, shown(peers))

	require.NoError(t, members[0].Leave(ctx))
	require.NoError(t, members[2].Leave(ctx))
	requireEmpty(t, client)
}

func TestGroupsOfDifferentNamesDoNotMeet(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx, sessions := limited(t), keep(t, client)
	groups := []*coord.Group{
		coord.NewGroup(sessions, "a"), coord.NewGroup(sessions, "a!"), coord.NewGroup(sessions, "a!/members"),
		coord.NewGroup(sessions, "a", coord.WithNamespace("other")), coord.NewGroup(sessions, "members"),
	}
	for i, g := range groups {
		_, err := g.Join(ctx, "id", fmt.Sprint(i))
		require.NoError(t, err)
	}
	for i, g := range groups {
		peers, err := g.Members(ctx)
		require.NoError(t, err)
		require.Equal(t, []string{fmt.Sprintf("id=%d", i)}, shown(peers))
	}
}

func TestIDsAndValuesAreTakenAsTheyAre(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx, k := limited(t), keep(t, client)
	odd := []string{"/", "!/", "..", ".", "%2F", "%", " ", "\x00", "\n", "é", "e\u0301", "members", "l1-0", strings.Repeat("/", 512)}
	g, l := coord.NewGroup(k, "x"), coord.NewLatch(k, "x", len(odd))
	one := map[string]int{}
	for _, id := range odd {
		_, err := g.Join(ctx, id, "\xff\x00"+id)
		require.NoError(t, err, "%q", id)
		require.NoError(t, l.Arrive(ctx, id))
		run(t, client, shardsOf(len(odd)), id, obey)
		one[id] = 1
	}
	peers, err := g.Members(ctx)
	require.NoError(t, err)
	require.Len(t, peers, len(odd))
	for i, p := range peers {
		require.Equal(t, odd[i], p.ID)
		require.Equal(t, "\xff\x00"+odd[i], p.Value)
	}
	arrived, err := l.Arrived(ctx)
	require.NoError(t, err)
	require.Equal(t, odd, arrived)
	require.NoError(t, l.Wait(ctx))
	awaitShares(t, client, len(odd), one)
}

// Somebody else's keys below the folder, and those of locks, are no members.
func TestOnlyMembersAreMembers(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := limited(t)
	g := coord.NewGroup(keep(t, client), "workers")
	_, err := g.Join(ctx, "a", "")
	require.NoError(t, err)
	for _, key := range []string{"x", "x/stray", "!/epoch/7", "a/b/l7-0", "a/zzz"} {
		_, err := client.Put(ctx, "etcdlock/workers!/members/"+key, "")
		require.NoError(t, err)
	}
	_, err = etcdlock.NewMutex(keep(t, client), "workers").Lock(ctx)
	require.NoError(t, err)
	peers, err := g.Members(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"a="}, shown(peers))

	// The stray key below "a/b/" is none of the member "a/b".
	_, err = g.Join(ctx, "a/b", "")
	require.NoError(t, err)
	observed := 0
	await(ctx, t, g, func(peers []coord.Peer) bool {
		if observed++; observed == 1 {
			_, err := client.Put(ctx, "etcdlock/workers!/members/a/b/l7-0", "again")
			require.NoError(t, err)
			_, err = g.Join(ctx, "c", "")
			require.NoError(t, err)
		}
		require.Subset(t, shown(peers), []string{"a=", "a/b="})
		return len(peers) == 3
	})
}

func TestIDIsRefusedWhileItsMemberLives(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, _ *embedtest.Cluster, client *clientv3.Client) {
		ctx, short := limited(t), session.WithTTL(time.Second)
		sessions := keep(t, client, short)
		_, err := coord.NewGroup(sessions, "workers").Join(ctx, "a", "first")
		require.NoError(t, err)
		errs := make(chan error)
		for _, source := range []*session.Keeper{sessions, keep(t, client, short)} {
			g := coord.NewGroup(source, "workers")
			go func() {
				_, err := g.Join(ctx, "a", "second")
				errs <- err
			}()
			go func() { errs <- g.Keep(ctx, "a", "second") }()
		}
		for range 4 {
			err := <-errs
			require.ErrorIs(t, err, coord.ErrIDTaken)
			require.Regexp(t, `^(join|keep) "workers": `, err.Error())
			require.ErrorContains(t, err, "workers!/members/a/l")
		}
		peers, err := coord.NewGroup(sessions, "workers").Members(ctx)
		require.NoError(t, err)
		require.Equal(t, []string{"a=first"}, shown(peers))
	})
}

func TestIDIsFreeOnceItsMemberHasLeftOrCrashed(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
		ctx := limited(t)
		g := coord.NewGroup(keep(t, client, session.WithTTL(time.Second)), "workers")
		for _, leave := range []func(*coord.Member, *embedtest.Link){
			func(m *coord.Member, _ *embedtest.Link) { require.NoError(t, m.Leave(ctx)) },
			func(_ *coord.Member, link *embedtest.Link) { link.Blackhole() },
		} {
			other, link := cluster.Link(t)
			first, err := coord.NewGroup(keep(t, other, session.WithTTL(time.Second)), "workers").Join(ctx, "a", "first")
			require.NoError(t, err)
			var joining sync.WaitGroup
			joining.Go(func() {
				second, err := g.Join(ctx, "a", "second")
				require.NoError(t, err)
				require.NoError(t, second.Leave(ctx))
			})
			leave(first, link)
			joining.Wait()
			require.Error(t, first.Err())
			link.Heal()
		}
	})
}

func TestMemberIsToldOfItsLoss(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := limited(t)
	s, err := session.New(ctx, client)
	require.NoError(t, err)
	m, err := coord.NewGroup(s, "workers").Join(ctx, "a", "")
	require.NoError(t, err)
	require.NoError(t, m.Err())
	_, err = client.Revoke(ctx, s.Lease())
	require.NoError(t, err)
	_ = s.Renew(ctx)
	<-m.Done()
	require.ErrorIs(t, m.Err(), etcdlock.ErrLost)
	require.ErrorIs(t, context.Cause(m.Context()), etcdlock.ErrLost)
	require.ErrorIs(t, m.Set(ctx, "late"), etcdlock.ErrLost)
	require.ErrorIs(t, m.Leave(ctx), etcdlock.ErrLost)
}

// await returns when the loop over Observe yields members that are accepted.
func await(ctx context.Context, t testing.TB, g *coord.Group, accept func([]coord.Peer) bool) (peers []coord.Peer) {
	t.Helper()
	for peers, err := range g.Observe(ctx) {
		require.NoError(t, err)
		if accept(peers) {
			return peers
		}
	}
	require.Fail(t, "the members do not come")
	return nil
}

func TestKeepJoinsAgainAfterEveryLoss(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
		ctx := limited(t)
		other, link := cluster.Link(t)
		sessions := keep(t, other, session.WithTTL(time.Second))
		g := coord.NewGroup(keep(t, client), "workers")
		keeping, stop := context.WithCancelCause(ctx)
		kept := make(chan error, 1)
		go func() { kept <- coord.NewGroup(sessions, "workers").Keep(keeping, "a", "value") }()

		there := func(peers []coord.Peer) bool { return slices.Equal(shown(peers), []string{"a=value"}) }
		gone := func(peers []coord.Peer) bool { return len(peers) == 0 }
		await(ctx, t, g, there)
		for range 2 { // the lease is revoked
			s, err := sessions.Session(ctx)
			require.NoError(t, err)
			last := await(ctx, t, g, there)
			_, err = client.Revoke(ctx, s.Lease())
			require.NoError(t, err)
			await(ctx, t, g, func(peers []coord.Peer) bool { return there(peers) && peers[0].Token > last[0].Token })
		}
		last := await(ctx, t, g, there) // the key is removed
		_, err := client.Delete(ctx, "etcdlock/workers!/members/", clientv3.WithPrefix())
		require.NoError(t, err)
		await(ctx, t, g, func(peers []coord.Peer) bool { return there(peers) && peers[0].Token > last[0].Token })
		link.Blackhole()
		await(ctx, t, g, gone)
		link.Heal()
		await(ctx, t, g, there)

		enough := errors.New("enough")
		stop(enough)
		err = <-kept
		require.ErrorIs(t, err, enough)
		require.ErrorContains(t, err, `keep "workers"`)
		await(ctx, t, g, gone) // if Keep was just joining, the key is removed in the background
		require.NoError(t, sessions.Close(ctx))
		requireEmpty(t, client)
	})
}

// An election in etcd lets a lease that is not renewed begin anew.
func TestKeepOutlastsElections(t *testing.T) {
	t.Parallel()
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
		ctx := limited(t)
		other, link := cluster.Link(t)
		sessions := keep(t, other, session.WithTTL(3*time.Second))
		keeping, stop := context.WithCancelCause(ctx)
		kept := make(chan error, 1)
		go func() { kept <- coord.NewGroup(sessions, "workers").Keep(keeping, "a", "") }()
		g := coord.NewGroup(keep(t, client), "workers")
		there := func(peers []coord.Peer) bool { return len(peers) == 1 }
		token := await(ctx, t, g, there)[0].Token
		last, err := sessions.Session(ctx)
		require.NoError(t, err)
		link.Blackhole()
		<-last.Done()
		link.Heal()
		for range 10 {
			member := cluster.Leader()
			member.Stop()
			require.NoError(t, member.Restart())
			time.Sleep(time.Second)
		}
		await(ctx, t, g, func(peers []coord.Peer) bool { return there(peers) && peers[0].Token > token })
		stop(errStop)
		require.ErrorIs(t, <-kept, errStop)
	})
}

func TestObserveYieldsEveryChangeOrTheLatest(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	ctx := limited(t)
	g := coord.NewGroup(keep(t, client), "workers")
	var observed [][]string
	steps := []func(){}
	var m *coord.Member
	var err error
	steps = append(steps,
		func() { m, err = g.Join(ctx, "a", "1") },
		func() { err = m.Set(ctx, "2") },
		func() { _, err = g.Join(ctx, "b", "") },
		func() { err = m.Leave(ctx) },
	)
	for peers, failure := range g.Observe(ctx) {
		require.NoError(t, failure)
		if observed = append(observed, shown(peers)); len(observed) > len(steps) {
			break
		}
		steps[len(observed)-1]()
		require.NoError(t, err)
	}
	require.Equal(t, [][]string{nil, {"a=1"}, {"a=2"}, {"a=2", "b="}, {"b="}}, observed)

	// A loop that does not come back for a while gets the latest.
	n := 0
	for peers, failure := range g.Observe(ctx) {
		require.NoError(t, failure)
		if n++; n == 1 {
			for i := range 100 {
				_, err := g.Join(ctx, fmt.Sprint(i), "")
				require.NoError(t, err)
			}
		}
		if len(peers) == 101 {
			break
		}
	}
	require.Less(t, n, 100)
}

func TestObserveEndsWithItsContextAndWithTheClient(t *testing.T) {
	t.Parallel()
	cluster, _ := start(t)
	client, err := cluster.NewClient()
	require.NoError(t, err)
	g := coord.NewGroup(keep(t, client), "workers")
	ctx, stop := context.WithCancel(limited(t))
	defer stop()
	for _, err := range g.Observe(ctx) {
		require.NoError(t, err)
		stop()
	}
	var last error
	for _, err := range g.Observe(limited(t)) {
		if last = err; err == nil {
			require.NoError(t, client.Close())
		}
	}
	require.ErrorContains(t, last, `observe "workers"`)
	require.ErrorContains(t, last, "closed")
}

func TestBadInputIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	cluster, client := start(t)
	ctx, sessions := limited(t), keep(t, client)
	work := func(context.Context, *etcdlock.Hold, int) error { return nil }
	long := strings.Repeat("x", 513)
	_, err := sessions.Session(ctx)
	require.NoError(t, err)
	before := cluster.AppliedIndex()
	for _, bad := range []struct{ name, id, namespace string }{
		{"", "a", "n"}, {"\xff", "a", "n"}, {long, "a", "n"}, {strings.Repeat("/", 200), "a", "n"},
		{"x", "", "n"}, {"x", "\xff", "n"}, {"x", long, "n"},
		{"x", "a", ""}, {"x", "a", long}, {"x", "a", "etcdlock/orders!"}, {"x", "a", "etcdlock/orders!/shards"},
	} {
		g := coord.NewGroup(sessions, bad.name, coord.WithNamespace(bad.namespace))
		_, err := g.Join(ctx, bad.id, "")
		namespace := coord.WithNamespace(bad.namespace)
		s, l := coord.NewShards(sessions, bad.name, 4, namespace), coord.NewLatch(sessions, bad.name, 1, namespace)
		for _, err := range []error{err, g.Keep(ctx, bad.id, ""), s.Run(ctx, bad.id, work), l.Arrive(ctx, bad.id)} {
			require.ErrorIs(t, err, etcdlock.ErrInvalidName, "%.20q", bad)
			wrapped := (*etcdlock.Error)(nil)
			require.ErrorAs(t, err, &wrapped)
			require.Equal(t, bad.name, wrapped.Name)
			require.Less(t, len(err.Error()), 400)
		}
		if bad.id == "a" {
			_, err = g.Members(ctx)
			require.ErrorIs(t, err, etcdlock.ErrInvalidName)
			_, err = s.Owners(ctx)
			require.ErrorIs(t, err, etcdlock.ErrInvalidName)
			o := coord.NewOnce(sessions, bad.name, namespace)
			_, err = o.Do(ctx, func(context.Context, *etcdlock.Hold) (coord.Outcome, error) { return coord.Outcome{}, nil })
			require.ErrorIs(t, err, etcdlock.ErrInvalidName)
			_, _, err = o.Done(ctx)
			require.ErrorIs(t, err, etcdlock.ErrInvalidName)
			_, err = coord.NewBarrier(sessions, bad.name, 2, namespace).Await(ctx)
			require.ErrorIs(t, err, etcdlock.ErrInvalidName)
			_, err = l.Arrived(ctx)
			for _, err := range []error{o.Reset(ctx), l.Wait(ctx), err, l.Reset(ctx)} {
				require.ErrorIs(t, err, etcdlock.ErrInvalidName)
			}
			for _, err = range g.Observe(ctx) {
				require.ErrorIs(t, err, etcdlock.ErrInvalidName)
			}
			for _, err = range s.Observe(ctx) {
				require.ErrorIs(t, err, etcdlock.ErrInvalidName)
			}
		}
	}
	g, large := coord.NewGroup(sessions, "x"), strings.Repeat("x", 1<<20+1)
	_, err = g.Join(ctx, "a", large)
	require.ErrorIs(t, err, etcdlock.ErrTooLarge)
	require.ErrorIs(t, g.Keep(ctx, "a", large), etcdlock.ErrTooLarge)
	require.Equal(t, before, cluster.AppliedIndex())
	m, err := g.Join(ctx, "a", "")
	require.NoError(t, err)
	require.ErrorIs(t, m.Set(ctx, large), etcdlock.ErrTooLarge)
	require.NoError(t, m.Err())
}

func TestMistakesPanicWithWords(t *testing.T) {
	t.Parallel()
	_, client := start(t)
	sessions := keep(t, client)
	var none *session.Keeper
	var nothing coord.Group
	for text, mistake := range map[string]func(){
		"a Group needs a session source": func() { coord.NewGroup(nil, "x") },
		"Shards needs a session source":  func() { coord.NewShards(none, "x", 1) },
		"nil option":                     func() { coord.NewGroup(sessions, "x", nil) },
		"nil context":                    func() { _ = coord.NewGroup(sessions, "x").Keep(nil, "a", "") }, //nolint:staticcheck // the mistake
		"made with its constructor":      func() { _, _ = nothing.Members(context.Background()) },
		"the number of shards, 0,":       func() { coord.NewShards(sessions, "x", 0) },
		"the number of shards, -1,":      func() { coord.NewShards(sessions, "x", -1) },
		"the number of shards, 10001,":   func() { coord.NewShards(sessions, "x", 10001) },
		"the number of arrivals, 0,":     func() { coord.NewLatch(sessions, "x", 0) },
		"the number of arrivals, -1,":    func() { coord.NewLatch(sessions, "x", -1) },
		"the number of arrivals, 10001,": func() { coord.NewLatch(sessions, "x", 10001) },
		"the number of parties, 0,":      func() { coord.NewBarrier(sessions, "x", 0) },
		"the number of parties, -1,":     func() { coord.NewBarrier(sessions, "x", -1) },
		"the number of parties, 10001,":  func() { coord.NewBarrier(sessions, "x", 10001) },
		"an expiry that is not positive": func() { coord.WithExpiry(0) },
		"WithExpiry is not for a Latch":  func() { coord.NewLatch(sessions, "x", 1, coord.WithExpiry(time.Second)) },
		"a Once needs a session source":  func() { coord.NewOnce(nil, "x") },
		"Do needs a function":            func() { _, _ = coord.NewOnce(sessions, "x").Do(context.Background(), nil) },
		"the weight 0 ":                  func() { coord.WithWeight(0) },
		"the weight -1 ":                 func() { coord.WithWeight(-1) },
		"the weight 1001 ":               func() { coord.WithWeight(1001) },
		"WithWeight is not for a Group":  func() { coord.NewGroup(sessions, "x", coord.WithWeight(2)) },
		"a negative settle time":         func() { coord.WithSettle(-1) },
		"Run needs a function":           func() { _ = coord.NewShards(sessions, "x", 1).Run(context.Background(), "a", nil) },
	} {
		t.Run(text, func(t *testing.T) {
			defer func() { require.Contains(t, fmt.Sprint(recover()), text) }()
			mistake()
		})
	}
}

func TestDeniedPermissionNamesTheKeys(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t, embedtest.WithAuth("root",
		embedtest.User{Name: "alice", Password: "secret"},
		embedtest.User{Name: "bob", Password: "secret", Grants: []embedtest.Grant{embedtest.ReadWrite("etcdlock/x!/")}}))
	g := coord.NewGroup(keep(t, cluster.ClientAs(t, "alice")), "x")
	ctx := limited(t)
	_, err := g.Members(ctx)
	require.ErrorContains(t, err, "permission denied")
	require.ErrorContains(t, err, `"etcdlock/x!/"`)
	_, err = g.Join(ctx, "a", "")
	require.ErrorContains(t, err, "etcdlock/x!/members/a/")
	for _, err := range g.Observe(ctx) {
		require.ErrorContains(t, err, `"etcdlock/x!/"`)
		break
	}

	bob := cluster.ClientAs(t, "bob")
	m, err := coord.NewGroup(keep(t, bob), "x").Join(ctx, "a", "")
	require.NoError(t, err)
	require.NoError(t, m.Leave(ctx))
	r := run(t, bob, shardsOf(2), "a", obey)
	awaitShares(t, bob, 2, map[string]int{"a": 2})
	require.ErrorIs(t, r.end(), errStop)
}

// Etcd falls silent after it has denied something, so which keys it is about stays unknown.
func TestADeniedCallEndsWithItsContext(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, cluster *embedtest.Cluster, client *clientv3.Client) {
		k := keep(t, client)
		_, err := k.Session(limited(t))
		require.NoError(t, err)
		defer cluster.Refuse("Txn", rpctypes.ErrPermissionDenied).Heal()
		defer cluster.Delay("Range", time.Hour).Heal()
		ctx, cancel := context.WithTimeout(limited(t), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err = coord.NewGroup(k, "x").Join(ctx, "a", "")
		require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
		require.Equal(t, 100*time.Millisecond, time.Since(began))
	})
}
