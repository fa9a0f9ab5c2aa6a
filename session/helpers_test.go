package session_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

// silent is a request that is not answered.
func silent(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// startEtcd starts a real etcd, unless only the tests with a fake are wanted.
func startEtcd(t *testing.T, opts ...embedtest.Option) *embedtest.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("needs an etcd server")
	}
	t.Parallel()
	return embedtest.Start(t, opts...)
}

// withEtcd runs test with a real etcd in virtual time: what waits for seconds takes none.
func withEtcd(t *testing.T, test func(t *testing.T, c *embedtest.Cluster), opts ...embedtest.Option) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs an etcd server")
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, embedtest.Start(t, append(opts, embedtest.WithVirtualTime())...)) })
}

// slack is for sessions in real time that wait for renewals: a busy machine may hold one up for seconds.
var slack = session.WithTTL(6 * time.Second)

// create creates a session that is closed at the end of the test, in real or virtual time.
func create(t *testing.T, c *clientv3.Client, opts ...session.Option) *session.Session {
	t.Helper()
	s, err := session.New(t.Context(), c, append([]session.Option{session.WithMonotonicClock()}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	return s
}

// put creates a key bound to the lease and returns its create revision.
func put(t *testing.T, c *clientv3.Client, key string, lease clientv3.LeaseID) int64 {
	t.Helper()
	answer, err := c.Put(t.Context(), key, "", clientv3.WithLease(lease))
	require.NoError(t, err)
	return answer.Header.Revision
}

// until polls for what etcd gives no signal for. There is no limit but the test
// binary's: a slow machine is not a failure.
func until(t *testing.T, done func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		<-ticker.C
	}
}

// records keeps what is logged.
type records struct {
	Mu      sync.Mutex
	Records []slog.Record
}

// Enabled implements slog.Handler.
func (l *records) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs implements slog.Handler.
func (l *records) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler.
func (l *records) WithGroup(string) slog.Handler { return l }

// Handle implements slog.Handler.
func (l *records) Handle(_ context.Context, r slog.Record) error {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.Records = append(l.Records, r)
	return nil
}

// Warned returns the warnings.
func (l *records) Warned() (warnings []slog.Record) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	for _, r := range l.Records {
		if r.Level == slog.LevelWarn {
			warnings = append(warnings, r)
		}
	}
	return warnings
}

// attribute returns an attribute of r.
func attribute(r slog.Record, key string) (value slog.Value) {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == key {
			value = a.Value
		}
		return true
	})
	return value
}
