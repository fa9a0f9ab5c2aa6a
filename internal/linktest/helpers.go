package linktest

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

// StartEtcd starts a real etcd, unless only the tests in virtual time are wanted.
func StartEtcd(t *testing.T, opts ...embedtest.Option) *embedtest.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("needs an etcd server")
	}
	t.Parallel()
	return embedtest.Start(t, opts...)
}

// NewSession creates a session that is closed at the end of the test.
func NewSession(t *testing.T, c *clientv3.Client, opts ...session.Option) *session.Session {
	t.Helper()
	s, err := session.New(t.Context(), c, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.Background())) })
	return s
}

// Put creates a key bound to the lease and returns its create revision.
func Put(t *testing.T, c *clientv3.Client, key string, lease clientv3.LeaseID) int64 {
	t.Helper()
	answer, err := c.Put(t.Context(), key, "", clientv3.WithLease(lease))
	require.NoError(t, err)
	return answer.Header.Revision
}

// Until polls for what etcd gives no signal for. There is no limit but the test
// binary's: a slow machine is not a failure.
func Until(t *testing.T, done func() bool) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		<-ticker.C
	}
}

// Log keeps what is logged.
type Log struct {
	Mu      sync.Mutex
	Records []slog.Record
}

// Enabled implements slog.Handler.
func (l *Log) Enabled(context.Context, slog.Level) bool { return true }

// WithAttrs implements slog.Handler.
func (l *Log) WithAttrs([]slog.Attr) slog.Handler { return l }

// WithGroup implements slog.Handler.
func (l *Log) WithGroup(string) slog.Handler { return l }

// Handle implements slog.Handler.
func (l *Log) Handle(_ context.Context, r slog.Record) error {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.Records = append(l.Records, r)
	return nil
}

// Warnings returns when something was warned of, and requires that it was with trust left.
func (l *Log) Warnings(t *testing.T) (times []time.Time) {
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
