package concurrency_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

// outcomes are calls, and what comes of them in both packages. Where etcd's package does something else, it is in theirs,
// and the documentation of the package says so. They include what the tests of etcd's package call, in etcd's
// tests/integration, but for WithLease and ResumeElection, which are left out.
var outcomes = []struct {
	name   string
	call   func(s stand) string
	want   string
	theirs string // if it is not the same
}{
	{"lock and unlock", func(s stand) string {
		m := s.newMutex(s.session(), "a")
		return told(m.Lock(s.ctx), m.Unlock(s.ctx)) + fmt.Sprint(" ", s.keys())
	}, "nil nil 0", ""},
	{"lock again by the same value", func(s stand) string {
		m := s.newMutex(s.session(), "a")
		return told(m.Lock(s.ctx), m.Lock(s.ctx), m.TryLock(s.ctx), m.Unlock(s.ctx), m.Unlock(s.ctx))
	}, "nil nil nil nil ErrLockReleased", ""},
	{"try a lock of another session", func(s stand) string {
		a, b := s.newMutex(s.session(), "a"), s.newMutex(s.session(), "a")
		return told(a.Lock(s.ctx), b.TryLock(s.ctx), a.Unlock(s.ctx), b.TryLock(s.ctx), b.Unlock(s.ctx))
	}, "nil ErrLocked nil nil nil", ""},
	{"try a lock of the same session", func(s stand) string {
		ss := s.session()
		return told(s.newMutex(ss, "a").Lock(s.ctx), s.newMutex(ss, "a").TryLock(s.ctx))
	}, "nil ErrLocked", "nil nil"},
	{"unlock what was never locked", func(s stand) string {
		m := s.newMutex(s.session(), "a")
		return told(m.Unlock(s.ctx)) + fmt.Sprintf(" %q %v", m.Key(), m.Header())
	}, `ErrLockReleased "" <nil>`, ""},
	{"locks of different prefixes", func(s stand) string {
		ss := s.session()
		return told(s.newMutex(ss, "/a").Lock(s.ctx), s.newMutex(ss, "/a/b").TryLock(s.ctx), s.newMutex(ss, "a/").TryLock(s.ctx))
	}, "nil nil nil", ""},
	{"lock with a context that is over", func(s stand) string {
		return told(s.newMutex(s.session(), "a").Lock(ended())) + fmt.Sprint(" ", s.keys())
	}, "Canceled 0", ""},
	{"wait for too long", func(s stand) string {
		holder := s.newMutex(s.session(), "a")
		err := holder.Lock(s.ctx)
		text := told(err, s.newMutex(s.session(), "a").Lock(briefly(s)))
		return text + fmt.Sprint(" ", s.settled(1))
	}, "nil DeadlineExceeded 1", ""},
	{"unlock with a context that is over", func(s stand) string {
		m := s.newMutex(s.session(), "a")
		return told(m.Lock(s.ctx), m.Unlock(ended())) + fmt.Sprint(" ", s.keys())
	}, "nil nil 0", "nil Canceled 1"},
	{"ownership in a transaction", func(s stand) string {
		m := s.newMutex(s.session(), "a")
		held := told(m.Lock(s.ctx)) + " " + s.owns(m)
		return held + " " + told(m.Unlock(s.ctx)) + " " + s.owns(m)
	}, "nil true nil false", ""},
	{"ownership after somebody has removed the key", func(s stand) string {
		m := s.newMutex(s.session(), "a")
		err := m.Lock(s.ctx)
		_, removed := s.client.Delete(s.ctx, m.Key())
		return told(err, removed) + " " + s.owns(m)
	}, "nil nil false", ""},
	{"unlock what somebody has removed, and another has", func(s stand) string {
		a, b := s.newMutex(s.session(), "a"), s.newMutex(s.session(), "a")
		err := a.Lock(s.ctx)
		_, removed := s.client.Delete(s.ctx, a.Key())
		return told(err, removed, b.Lock(s.ctx), a.Unlock(s.ctx)) + " " + s.owns(b)
	}, "nil nil nil ErrSessionExpired true", "nil nil nil nil true"},
	{"lock after the session was closed", func(s stand) string {
		ss := s.session()
		return told(ss.Close(), s.newMutex(ss, "a").Lock(s.ctx))
	}, "nil ErrSessionExpired", "nil [etcdserver: requested lease not found]"},
	{"unlock after the session was closed", func(s stand) string {
		ss := s.session()
		m := s.newMutex(ss, "a")
		return told(m.Lock(s.ctx), ss.Close(), m.Unlock(s.ctx), m.Unlock(s.ctx))
	}, "nil nil ErrSessionExpired ErrLockReleased", "nil nil nil ErrLockReleased"},
	{"wait while the session is closed", func(s stand) string {
		ss := s.session()
		holder, waiter := s.newMutex(s.session(), "a"), s.newMutex(ss, "a")
		err := holder.Lock(s.ctx)
		waiting := s.start(func() error { return waiter.Lock(s.ctx) })
		return told(err, ss.Close(), holder.Unlock(s.ctx), within(s, "the end of the wait", waiting))
	}, "nil nil nil ErrSessionExpired", ""},
	{"close", func(s stand) string {
		ss := s.session()
		text := told(s.newMutex(ss, "a").Lock(s.ctx), ss.Close())
		within(s, "Done", ss.Done())
		return text + fmt.Sprint(" ", told(ss.Ctx().Err()), " ", s.keys())
	}, "nil nil Canceled 0", ""},
	{"orphan", func(s stand) string {
		ss := s.session()
		err := s.newMutex(ss, "a").Lock(s.ctx)
		ss.Orphan()
		within(s, "Done", ss.Done())
		return told(err, ss.Ctx().Err()) + fmt.Sprint(" ", s.keys())
	}, "nil Canceled 1", ""},
	{"end of the session's context", func(s stand) string {
		ctx, cancel := context.WithCancel(s.client.Ctx())
		ss, err := s.newSession(ctx, s.client, 30)
		require.NoError(s, err)
		err = s.newMutex(ss, "a").Lock(s.ctx)
		cancel()
		within(s, "Done", ss.Done())
		return told(err, ss.Ctx().Err()) + fmt.Sprint(" ", s.keys())
	}, "nil Canceled 1", ""},
	{"a session without time", func(s stand) string {
		_, err := s.newSession(ended(), s.client, 30)
		return told(err)
	}, "Canceled", ""},
	{"campaign, proclaim, resign", func(s stand) string {
		e := s.newElection(s.session(), "e")
		text := told(e.Campaign(s.ctx, "one")) + " " + s.leader(e)
		text += " " + told(e.Proclaim(s.ctx, "two")) + " " + s.leader(e)
		text += " " + told(e.Campaign(s.ctx, "two")) + " " + told(e.Campaign(s.ctx, "three")) + " " + s.leader(e)
		return text + " " + told(e.Resign(s.ctx), e.Resign(s.ctx)) + " " + s.leader(e)
	}, "nil one nil two nil nil three nil nil ErrElectionNoLeader", ""},
	{"proclaim without a term", func(s stand) string {
		e := s.newElection(s.session(), "e")
		text := told(e.Proclaim(s.ctx, "x"), e.Campaign(s.ctx, "y"), e.Resign(s.ctx), e.Proclaim(s.ctx, "z"))
		return text + fmt.Sprintf(" %q", e.Key())
	}, `ErrElectionNotLeader nil nil ErrElectionNotLeader ""`, ""},
	{"proclaim after somebody has removed the key", func(s stand) string {
		e := s.newElection(s.session(), "e")
		err := e.Campaign(s.ctx, "x")
		_, removed := s.client.Delete(s.ctx, e.Key())
		return told(err, removed, e.Proclaim(s.ctx, "z"))
	}, "nil nil ErrElectionNotLeader", ""},
	{"campaign behind a leader for too long", func(s stand) string {
		leader, other := s.newElection(s.session(), "e"), s.newElection(s.session(), "e")
		text := told(leader.Campaign(s.ctx, "x"), other.Campaign(briefly(s), "y"))
		return text + " " + s.leader(leader) + fmt.Sprint(" ", s.settled(1))
	}, "nil DeadlineExceeded x 1", ""},
	{"the leader's key", func(s stand) string {
		e := s.newElection(s.session(), "e")
		err := e.Campaign(s.ctx, "x")
		answer, failed := e.Leader(s.ctx)
		kv := answer.Kvs[0]
		same := string(kv.Key) == e.Key() && kv.CreateRevision == e.Rev() && e.Header().Revision == e.Rev()
		return told(err, failed) + fmt.Sprint(" ", same)
	}, "nil nil true", ""},
	{"observe", func(s stand) string {
		a, b := s.newElection(s.session(), "e"), s.newElection(s.session(), "e")
		err := a.Campaign(s.ctx, "one")
		ctx, cancel := context.WithCancel(s.ctx)
		leaders := s.newElection(s.session(), "e").Observe(ctx)
		var text string
		next := func() { text += " " + string(within(s, "a leader", leaders).Kvs[0].Value) }
		next()
		require.NoError(s, a.Proclaim(s.ctx, "two"))
		next()
		require.NoError(s, a.Resign(s.ctx))
		require.NoError(s, b.Campaign(s.ctx, "three"))
		next()
		cancel()
		for range leaders {
		}
		return told(err) + text
	}, "nil one two three", ""},
	{"campaign twice on one session", func(s stand) string {
		ss := s.session()
		first, second := s.newElection(ss, "e"), s.newElection(ss, "e")
		return told(first.Campaign(s.ctx, "x"), second.Campaign(briefly(s), "y")) + " " + s.leader(first)
	}, "nil DeadlineExceeded x", "nil nil y"},
	{"campaign on a prefix of a key", func(s stand) string {
		_, err := s.client.Put(s.ctx, "testa", "value")
		return told(err, s.newElection(s.session(), "test").Campaign(s.ctx, "x"))
	}, "nil nil", ""},
	{"observe after a compaction", func(s stand) string {
		e := s.newElection(s.session(), "e")
		err := e.Campaign(s.ctx, "x")
		put, failed := s.client.Put(s.ctx, "other", "value")
		_, compacted := s.client.Compact(s.ctx, put.Header.Revision)
		return told(err, failed, compacted) + " " + string(within(s, "the leader", e.Observe(s.ctx)).Kvs[0].Value)
	}, "nil nil nil x", ""},
	{"versions of the leader's key", func(s stand) string {
		e := s.newElection(s.session(), "e")
		err := e.Campaign(s.ctx, "x")
		leaders := e.Observe(s.ctx)
		var text string
		var last int64
		for _, next := range []string{"y", "z", ""} {
			answer := within(s, "the leader", leaders)
			kv := answer.Kvs[0]
			text += fmt.Sprint(" ", string(kv.Value), kv.Version, kv.ModRevision > last, answer.Header.Revision >= kv.ModRevision)
			last = kv.ModRevision
			if next != "" {
				require.NoError(s, e.Proclaim(s.ctx, next))
			}
		}
		return told(err) + text
	}, "nil x1 true true y2 true true z3 true true", ""},
	{"a session of a given TTL", func(s stand) string {
		ss, err := s.newSession(s.client.Ctx(), s.client, 90)
		require.NoError(s, err)
		lease, failed := s.client.TimeToLive(s.ctx, ss.Lease())
		return told(err, failed, ss.Close()) + fmt.Sprint(" ", lease.GrantedTTL)
	}, "nil nil nil 90", ""},
	{"the next in line goes before the holder", func(s stand) string {
		leaving := s.session()
		holder, next, last := s.newMutex(s.session(), "a"), s.newMutex(leaving, "a"), s.newMutex(s.session(), "a")
		err := holder.Lock(s.ctx)
		left := s.start(func() error { return next.Lock(s.ctx) })
		waiting := s.start(func() error { return last.Lock(s.ctx) })
		text := told(err, leaving.Close()) + fmt.Sprint(" ", s.settled(2), len(waiting))
		err = holder.Unlock(s.ctx)
		return text + " " + told(err, within(s, "the lock", waiting), within(s, "the end of the wait", left))
	}, "nil nil 2 0 nil nil ErrSessionExpired", ""},
	{"the leader's session is closed", func(s stand) string {
		ss := s.session()
		leader, next := s.newElection(ss, "e"), s.newElection(s.session(), "e")
		err := leader.Campaign(s.ctx, "x")
		campaign := s.start(func() error { return next.Campaign(s.ctx, "y") })
		return told(err, ss.Close(), within(s, "the campaign", campaign)) + " " + s.leader(leader)
	}, "nil nil nil y", ""},
}

func TestBothPackagesDoTheSame(t *testing.T) {
	cluster := embedtest.Start(t)
	for i, o := range outcomes {
		t.Run(o.name, func(t *testing.T) {
			for name, k := range map[string]kit{"here": ours, "etcd": etcds} {
				t.Run(name, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					s := stand{kit: k, T: t, cluster: cluster, client: cluster.Client(t), ctx: ctx}
					want := o.want
					if name == "etcd" && o.theirs != "" {
						want = o.theirs
					}
					require.Equal(t, want, o.call(s), "outcome %d", i)
					_, err := s.client.Delete(ctx, "", clientv3.WithPrefix())
					require.NoError(t, err)
				})
			}
		})
	}
}

// settled waits until there are as many keys as wanted: some are removed in the background.
func (s stand) settled(want int64) int64 {
	s.Helper()
	require.Eventually(s, func() bool { return s.keys() == want }, time.Minute, time.Millisecond)
	return want
}

// start runs f until it waits in line.
func (s stand) start(f func() error) <-chan error {
	s.Helper()
	before := s.keys()
	done := make(chan error, 1)
	go func() { done <- f() }()
	require.Eventually(s, func() bool { return s.keys() > before }, time.Minute, time.Millisecond)
	return done
}

func (s stand) leader(e election) string {
	answer, err := e.Leader(s.ctx)
	if err != nil {
		return told(err)
	}
	return string(answer.Kvs[0].Value)
}
