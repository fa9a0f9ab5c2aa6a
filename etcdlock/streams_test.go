package etcdlock_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc/metadata"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// Gateways and tracing put something else into the context of every call, and etcd's client opens a
// stream of watches for each set of metadata.
func TestCallsOfASessionShareAStreamWhateverTheirContextsCarry(t *testing.T) {
	t.Parallel()
	for _, limit := range []uint32{8, 2} { // that a connection may have
		t.Run(fmt.Sprint(limit, " streams"), func(t *testing.T) {
			t.Parallel()
			c := embedtest.Start(t, embedtest.WithConfig(func(cfg *embed.Config) { cfg.MaxConcurrentStreams = limit }))
			s := newSession(t, c.Client(t), session.WithTTL(6*time.Second))
			request := 0
			ctx := func() context.Context {
				request++
				return metadata.AppendToOutgoingContext(t.Context(), "request-id", strconv.Itoa(request))
			}
			var held []*etcdlock.Hold
			var waiting []<-chan result
			for i := range 50 {
				m := etcdlock.NewMutex(s, fmt.Sprint("lock", i))
				h, err := m.Lock(ctx())
				require.NoError(t, err)
				held = append(held, h)
				waiting = append(waiting, locking(ctx(), m))
			}
			renewals := c.Calls("LeaseKeepAlive")
			require.Eventually(t, func() bool { // holds are watched from their second second on
				return c.Calls("Watch") >= 100 && c.Calls("LeaseKeepAlive") >= renewals+3
			}, time.Minute, 10*time.Millisecond)
			require.EqualValues(t, 1, c.StreamsOpened("Watch"))
			require.NoError(t, s.Err())
			for i, h := range held {
				unlock(t, h)
				unlock(t, granted(t, waiting[i]))
			}
		})
	}
}
