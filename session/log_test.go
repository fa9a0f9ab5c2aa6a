package session_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/session"
)

// logbook keeps what is logged.
type logbook struct {
	mu      sync.Mutex
	records []slog.Record
}

func (l *logbook) Enabled(context.Context, slog.Level) bool { return true }
func (l *logbook) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logbook) WithGroup(string) slog.Handler            { return l }

func (l *logbook) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
	return nil
}

// warnings returns when something was warned of, and requires that it was with trust left.
func (l *logbook) warnings(t *testing.T) (times []time.Time) {
	t.Helper()
	for _, r := range l.records {
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

func TestRenewalsThatFailAreLoggedOnceASecondAndNotAfterTheLoss(t *testing.T) {
	for name, trouble := range map[string]fate{
		"no answer": lost, "late answers": late(900 * time.Millisecond), "refusals": refused(rpctypes.ErrNoLeader),
	} {
		for _, ttl := range []time.Duration{time.Second, 2 * time.Second, 15 * time.Second} {
			t.Run(name+", "+ttl.String(), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, f *fake) {
					log := &logbook{}
					f.renew = trouble
					s := open(t, f, session.WithTTL(ttl), session.WithLogger(slog.New(log)))
					select {
					case <-s.Done():
					case <-time.After(time.Minute):
						require.NoError(t, s.Close(context.Background()))
					}
					time.Sleep(time.Minute)
					synctest.Wait()
					warned := log.warnings(t)
					for i := range warned[:max(len(warned)-1, 0)] {
						require.GreaterOrEqual(t, warned[i+1].Sub(warned[i]), time.Second)
					}
					if s.State() == session.Lost {
						require.NotEmpty(t, warned)
						require.Equal(t, "session lost", log.records[len(log.records)-1].Message)
						require.LessOrEqual(t, len(warned), int(ttl/time.Second)+1)
					}
				})
			})
		}
	}
}

func TestARenewalThatIsAnsweredAgainIsLogged(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		log := &logbook{}
		s := open(t, f, session.WithTTL(15*time.Second), session.WithLogger(slog.New(log)))
		f.set(func(f *fake) { f.renew = lost })
		time.Sleep(10 * time.Second)
		f.set(func(f *fake) { f.renew = nil })
		time.Sleep(time.Minute)
		require.NoError(t, s.Err())
		require.Equal(t, slog.LevelInfo, log.records[len(log.records)-1].Level)
		require.Len(t, log.warnings(t), len(log.records)-1)
	})
}
