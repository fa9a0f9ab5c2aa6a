package session_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
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

// startEtcd starts a real etcd, unless only the tests in virtual time are wanted.
func startEtcd(t *testing.T, opts ...embedtest.Option) *embedtest.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("needs an etcd server")
	}
	t.Parallel()
	return embedtest.Start(t, opts...)
}

// create creates a session that is closed at the end of the test.
func create(t *testing.T, c *clientv3.Client, opts ...session.Option) *session.Session {
	t.Helper()
	s, err := session.New(t.Context(), c, opts...)
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

// Warnings returns when something was warned of, and requires that it was with trust left.
func (l *records) Warnings(t *testing.T) (times []time.Time) {
	t.Helper()
	l.Mu.Lock()
	defer l.Mu.Unlock()
	for _, r := range l.Records {
		if r.Level != slog.LevelWarn {
			continue
		}
		times = append(times, r.Time)
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "trusted_for" {
				require.Positive(t, a.Value.Duration())
			}
			return true
		})
	}
	return times
}
