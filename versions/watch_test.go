package versions

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// gate holds up the requests of one client that create watches.
type gate struct {
	came     chan struct{} // one for each request that came to the gate
	open     chan struct{} // closed to let all through
	fromPast atomic.Int32  // how many asked for events of the past
}

func newGate() *gate { return &gate{came: make(chan struct{}, 100), open: make(chan struct{})} }

func (g *gate) option() grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn,
		method string, streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		stream, err := streamer(ctx, desc, conn, method, opts...)
		return gatedStream{stream, g}, err
	})
}

type gatedStream struct {
	grpc.ClientStream
	gate *gate
}

func (s gatedStream) SendMsg(m any) error {
	if watch, ok := m.(*etcdserverpb.WatchRequest); ok && watch.GetCreateRequest() != nil {
		if watch.GetCreateRequest().StartRevision != 0 {
			s.gate.fromPast.Add(1)
		}
		s.gate.came <- struct{}{}
		<-s.gate.open
	}
	return s.ClientStream.SendMsg(m)
}

func TestAReleaseBetweenTheLookAndTheWatchIsNotMissed(t *testing.T) {
	onEach(t, locks, func(t *testing.T, e *etcd) {
		held := lock(t, etcdlock.NewMutex(newSession(t, e), name(t)))
		g := newGate()
		s, err := session.New(within(t), e.client(t, g.option()), session.WithTTL(longTTL))
		require.NoError(t, err)
		t.Cleanup(func() { closeSoon(s) })
		ctx := within(t)
		waiting := going(func() (*etcdlock.Hold, error) { return etcdlock.NewMutex(s, name(t)).Lock(ctx) })

		await(t, "the waiter to ask for a watch", g.came)
		unlock(t, held)
		require.Empty(t, waiting)
		close(g.open)
		next := taken(t, "the waiter", waiting)
		require.Zero(t, g.fromPast.Load(), "etcd serves watches of the past late")
		unlock(t, next)
	})
}

func TestACompactionDoesNotDisturbThoseWhoWait(t *testing.T) {
	onEach(t, locks, func(t *testing.T, e *etcd) {
		admin := e.client(t)
		held := lock(t, etcdlock.NewMutex(newSession(t, e), name(t)))
		var line []<-chan got[*etcdlock.Hold]
		for range 3 {
			m, ctx := etcdlock.NewMutex(newSession(t, e), name(t)), within(t)
			line = append(line, inLine(t, admin, inNamespace(name(t)), func() (*etcdlock.Hold, error) { return m.Lock(ctx) }))
		}
		for _, waiter := range line {
			compact(t, admin, name(t))
			require.Empty(t, waiter)
			unlock(t, held)
			compact(t, admin, name(t))
			held = taken(t, "the next in line", waiter)
		}
		unlock(t, held)
	})
}

// compact writes something and forgets all that was before it.
func compact(t *testing.T, c *clientv3.Client, name string) {
	t.Helper()
	answer, err := c.Put(within(t), "elsewhere/"+name, "")
	require.NoError(t, err)
	// Another test's compaction may have come in between; then this is forgotten as well.
	if _, err = c.Compact(within(t), answer.Header.Revision); err != nil {
		require.ErrorContains(t, err, "compacted")
	}
}
