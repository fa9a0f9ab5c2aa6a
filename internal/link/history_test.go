package link_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

// look returns the revision that a member shows by itself.
func look(t *testing.T, s *session.Session, key string) int64 {
	t.Helper()
	answer, err := s.Link().Read(t.Context(), clientv3.OpGet(key, clientv3.WithSerializable()))
	require.NoError(t, err)
	return answer.Header.Revision
}

// writing makes a revision.
func writing(key string) link.Transaction {
	return link.Transaction{Then: []clientv3.Op{clientv3.OpPut(key, "")}}
}

// commit returns the revision that the answer shows.
func commit(t *testing.T, s *session.Session, transaction link.Transaction) int64 {
	t.Helper()
	answer, _, err := s.Link().Commit(t.Context(), transaction)
	require.NoError(t, err)
	return answer.Header.Revision
}

// Whatever a session hears first of a cluster that has gone back ends it.
func TestASessionIsLostWhenItsClusterGoesBack(t *testing.T) {
	const older, other = "etcd went back from revision ", "another cluster answers: "
	ctx := context.Background()
	restore := func(options ...embedtest.RestoreOption) func(*embedtest.Cluster, *embedtest.Snapshot) error {
		return func(c *embedtest.Cluster, s *embedtest.Snapshot) error { return c.Restore(ctx, s, options...) }
	}
	wipe := func(c *embedtest.Cluster, _ *embedtest.Snapshot) error { return c.Wipe(ctx) }
	hear := map[string]func(t *testing.T, s *session.Session) error{
		"a renewal": func(t *testing.T, s *session.Session) error {
			_ = s.Renew(t.Context())
			<-s.Done() // the quorum may have been asked
			return s.Err()
		},
		"a write": func(t *testing.T, s *session.Session) error {
			_, doubts, err := s.Link().Commit(t.Context(), writing("k"))
			require.NotZero(t, doubts, "it has been applied: %v", err)
			require.True(t, request.Doubtful(err))
			return err
		},
		"a read of the quorum": func(t *testing.T, s *session.Session) error {
			_, err := s.Link().Read(t.Context(), clientv3.OpGet("k"))
			return err
		},
		"a read of one member": func(t *testing.T, s *session.Session) error {
			_, err := s.Link().Read(t.Context(), clientv3.OpGet("k", clientv3.WithSerializable()))
			return err
		},
		"a watch": func(t *testing.T, s *session.Session) error {
			_, err := s.Link().Watch(t.Context(), time.Minute, "", "k")
			return err
		},
	}
	for name, tt := range map[string]struct {
		change func(*embedtest.Cluster, *embedtest.Snapshot) error
		by     []string
		told   string
	}{
		"restored":                {restore(), []string{"a renewal", "a write", "a read of the quorum"}, older},
		"restored as another one": {restore(embedtest.NewClusterID()), []string{"a renewal", "a write", "a read of the quorum", "a read of one member", "a watch"}, other},
		"restored, and written to": {func(c *embedtest.Cluster, s *embedtest.Snapshot) error {
			client := c.Client(t)
			if err := c.Restore(ctx, s); err != nil {
				return err
			}
			for range 10 {
				if _, err := client.Put(ctx, "elsewhere", ""); err != nil {
					return err
				}
			}
			return nil
		}, []string{"a renewal", "a write"}, "etcd went back from raft term "},
		"wiped":            {wipe, []string{"a write", "a read of the quorum"}, older},
		"wiped, the lease": {wipe, []string{"a renewal"}, "requested lease not found"},
	} {
		for _, by := range tt.by {
			t.Run(name+", seen by "+by, func(t *testing.T) {
				cluster := startEtcd(t)
				for range 2 { // each makes a raft term, and a restored cluster has fewer
					cluster.Members()[0].Kill()
					require.NoError(t, cluster.Members()[0].Restart())
				}
				s := create(t, cluster.Client(t), session.WithTTL(time.Hour))
				snapshot, err := cluster.Snapshot(t.Context())
				require.NoError(t, err)
				for range 2 { // one will be made up for by a write
					commit(t, s, writing("k"))
				}
				require.NoError(t, tt.change(cluster, snapshot))
				err = hear[by](t, s)
				require.ErrorIs(t, err, session.ErrLost)
				require.ErrorContains(t, err, tt.told)
				require.Error(t, s.Err())
			})
		}
	}
}

// A member may know less than another for any time, and shows that in what it answers by itself.
func TestASessionOutlastsAMemberThatIsBehind(t *testing.T) {
	cluster := startEtcd(t, embedtest.WithSize(3))
	s := create(t, cluster.Client(t), session.WithTTL(time.Hour))
	behind := cluster.Members()[0]
	if behind == cluster.Leader() {
		behind = cluster.Members()[1]
	}
	behind.Isolate()
	var highest int64
	lower := false
	for range 30 {
		highest = max(highest, commit(t, s, writing("k")))
		for range 3 {
			lower = look(t, s, "k") < highest || lower
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_ = s.Renew(ctx) // of which that member may hear last
		cancel()
		w, err := s.Link().Watch(t.Context(), 100*time.Millisecond, "", "k")
		if err == nil {
			lower = w.From < highest || lower
			w.Stop()
			s.Link().LeaveStream(w.Stream) // for the next member
		}
	}
	require.True(t, lower, "nothing was behind")
	behind.Heal()
	for range 30 {
		commit(t, s, writing("k"))
		require.NoError(t, s.Renew(t.Context()))
		look(t, s, "k")
	}
	require.NoError(t, s.Err())
}

// A renewal's answer shows what the member knew when it was asked. If that is less than what the session has heard by
// now, the quorum is asked, once.
func TestARenewalThatShowsLessThanIsKnownMakesTheQuorumTell(t *testing.T) {
	cluster := startEtcd(t)
	s := create(t, cluster.Client(t), session.WithTTL(time.Hour))
	index := cluster.AppliedIndex()
	require.NoError(t, s.Renew(t.Context()))
	require.Equal(t, index, cluster.AppliedIndex())

	late := cluster.Hold("LeaseKeepAlive")
	renewed := make(chan error, 1)
	go func() { renewed <- s.Renew(t.Context()) }()
	require.NoError(t, late.Wait(t.Context()))
	commit(t, s, writing("k"))
	late.Heal()
	require.NoError(t, <-renewed)
	until(t, func() bool { return cluster.AppliedIndex() == index+2 })
	require.NoError(t, s.Renew(t.Context()))
	commit(t, s, writing("k"))
	require.Equal(t, index+3, cluster.AppliedIndex())
	require.NoError(t, s.Err())
}

// A user with permission only for the keys of a lock notices it too.
func TestTheQuorumAnswersWithoutAnyPermission(t *testing.T) {
	cluster := startEtcd(t, embedtest.WithAuth("secret", embedtest.User{Name: "nobody", Password: "nothing"}))
	s := create(t, cluster.ClientAs(t, "nobody"), session.WithTTL(time.Hour))
	snapshot, err := cluster.Snapshot(t.Context())
	require.NoError(t, err)
	put(t, cluster.Client(t), "k", clientv3.NoLease)
	require.NoError(t, s.Renew(t.Context()))
	require.NoError(t, cluster.Restore(t.Context(), snapshot))
	// With the old token etcd waits for an index of the log that is lost. A stream gets a new one.
	_, err = s.Link().Watch(t.Context(), time.Minute, "", "k")
	require.Error(t, err, "it may not")
	_ = s.Renew(t.Context())
	<-s.Done()
	require.ErrorContains(t, s.Err(), "etcd went back from revision ")
}

// A watch may see a revision that the session has not seen.
func TestASessionMayBeToldThatItsClusterWentBack(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		err := s.Link().WentBack(12, 7)
		require.ErrorIs(t, err, session.ErrLost)
		require.ErrorContains(t, err, "etcd went back from revision 12 to 7")
		require.Equal(t, err, s.Err())
	})
}
