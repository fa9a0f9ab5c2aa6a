package session_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

// of fits the renewals of a lease, and their answers.
func of(lease clientv3.LeaseID) embedtest.FaultOption {
	return embedtest.When(func(message any) bool {
		m, ok := message.(interface{ GetID() int64 })
		return ok && m.GetID() == int64(lease)
	})
}

// awaitLater waits until the deadline of each session has moved on by n renewals.
func awaitLater(t *testing.T, n int, sessions ...*session.Session) {
	t.Helper()
	starts := make([]time.Time, len(sessions))
	for i, s := range sessions {
		starts[i] = s.Deadline()
	}
	for i, s := range sessions {
		until(t, func() bool {
			return s.Err() != nil || s.Deadline().Sub(starts[i]) > time.Duration(n)*s.TTL()/3-s.TTL()/6
		})
		require.NoError(t, s.Err())
	}
}

func TestSessionsOfAClientRenewOnOneStream(t *testing.T) {
	withAndWithoutPassword(t, func(t *testing.T, options ...embedtest.Option) {
		withEtcd(t, func(t *testing.T, c *embedtest.Cluster) {
			client := c.Client(t)
			sessions := []*session.Session{}
			for range 10 {
				sessions = append(sessions, create(t, client))
			}
			awaitLater(t, 2, sessions[0])
			opened := c.StreamsOpened("LeaseKeepAlive")
			awaitLater(t, 2, sessions...)
			require.Equal(t, opened, c.StreamsOpened("LeaseKeepAlive"))
			for _, s := range sessions {
				require.EqualValues(t, 1, c.OpenStreams("LeaseKeepAlive"))
				require.NoError(t, s.Close(t.Context()))
			}
			until(t, func() bool { return c.OpenStreams("LeaseKeepAlive") == 0 })
		}, options...)
	})
}

// The leases of sessions that have been created together are due together.
func TestThousandsOfSessionsRenewOnTheStream(t *testing.T) {
	withEtcd(t, func(t *testing.T, c *embedtest.Cluster) {
		client := c.Client(t)
		sessions := make([]*session.Session, 2000)
		for i := range sessions {
			sessions[i] = create(t, client)
		}
		awaitLater(t, 2, sessions...)
		opened := c.StreamsOpened("LeaseKeepAlive")
		awaitLater(t, 2, sessions...)
		require.Equal(t, opened, c.StreamsOpened("LeaseKeepAlive"))
	}, embedtest.WithAuth("secret"))
}

// A stream for watches and one for requests is what every session needs.
func TestTwoStreamsOfAConnectionAreEnough(t *testing.T) {
	withAndWithoutPassword(t, func(t *testing.T, options ...embedtest.Option) {
		c := startEtcd(t, append(options, embedtest.WithConfig(func(cfg *embed.Config) { cfg.MaxConcurrentStreams = 2 }))...)
		client := c.Client(t)
		s := create(t, client, slack)
		awaitLater(t, 1, s)
		w, err := s.Link().Watch(t.Context(), time.Minute, "", "k")
		require.NoError(t, err)
		defer w.Stop()
		for range 2 {
			awaitLater(t, 1, s)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := client.Put(ctx, "k", "v")
			cancel()
			require.NoError(t, err)
			require.NotEmpty(t, (<-w.Events).Events)
		}
		require.Zero(t, c.OpenStreams("LeaseKeepAlive"))
	})
}

func TestAStreamThatLosesARenewalCostsAnAttempt(t *testing.T) {
	for name, lose := range map[string]func(*embedtest.Cluster, string, ...embedtest.FaultOption) *embedtest.Fault{
		"request": (*embedtest.Cluster).LoseRequest,
		"answer":  (*embedtest.Cluster).LoseReply,
	} {
		t.Run(name, func(t *testing.T) {
			withEtcd(t, func(t *testing.T, c *embedtest.Cluster) {
				client := c.Client(t)
				s, other := create(t, client), create(t, client)
				awaitLater(t, 2, s)
				opened := c.StreamsOpened("LeaseKeepAlive")
				fault := lose(c, "LeaseKeepAlive", of(s.Lease()), embedtest.Once())
				<-fault.Bitten()
				awaitLater(t, 3, s)
				awaitLater(t, 3, other)
				require.Equal(t, opened+2, c.StreamsOpened("LeaseKeepAlive"), "a call, and another stream")
				require.EqualValues(t, 1, c.OpenStreams("LeaseKeepAlive"))
			})
		})
	}
}

// Its token has expired, or a member was restarted. That is no failure of a renewal.
func TestAStreamThatEndsIsOpenedAgain(t *testing.T) {
	withEtcd(t, func(t *testing.T, c *embedtest.Cluster) {
		log := &records{}
		s := create(t, c.Client(t), session.WithLogger(slog.New(log)))
		awaitLater(t, 2, s)
		authenticated, opened := c.Calls("Authenticate"), c.StreamsOpened("LeaseKeepAlive")
		refusal := c.Refuse("LeaseKeepAlive", rpctypes.ErrGRPCInvalidAuthToken, embedtest.Once())
		<-refusal.Bitten()
		awaitLater(t, 3, s)
		require.Equal(t, authenticated+1, c.Calls("Authenticate"))
		require.Equal(t, opened+1, c.StreamsOpened("LeaseKeepAlive"))
		require.Empty(t, log.Records)
	}, embedtest.WithAuth("secret"))
}

// Requests that every stream loses, and an endless wait for each.
func TestAStreamThatIsNeverAnsweredIsNotOpenedAgainSoon(t *testing.T) {
	withEtcd(t, func(t *testing.T, c *embedtest.Cluster) {
		s := create(t, c.Client(t))
		refusal := c.Refuse("LeaseKeepAlive", rpctypes.ErrGRPCPermissionDenied, of(s.Lease()), embedtest.Once())
		<-refusal.Bitten()
		awaitLater(t, 3, s)
		require.Zero(t, c.OpenStreams("LeaseKeepAlive"), "renewals are calls meanwhile")
	})
}

// stuck opens streams that take no message once it holds. So does one of gRPC that a server has refused unseen, as one
// that is being stopped does: gRPC opens it anew, which waits for a connection.
type stuck struct{ atomic.Bool }

func (s *stuck) open(ctx context.Context, d *grpc.StreamDesc, c *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := open(ctx, d, c, method, o...)
	if err == nil && s.Load() {
		stream = stuckStream{stream}
	}
	return stream, err
}

type stuckStream struct{ grpc.ClientStream }

func (s stuckStream) SendMsg(any) error { return silent(s.Context()) }

func TestAStreamThatTakesNoMessageHoldsUpNoSession(t *testing.T) {
	c := startEtcd(t)
	var streams stuck
	client, err := clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints(), Logger: c.Client(t).GetLogger(), DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(streams.open)},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	s, other := create(t, client, slack), create(t, client, slack)
	awaitLater(t, 1, s)
	streams.Store(true)
	end := c.Refuse("LeaseKeepAlive", rpctypes.ErrGRPCInvalidAuthToken, embedtest.Once())
	<-end.Bitten()
	awaitLater(t, 2, s)
	awaitLater(t, 1, other)
	require.NoError(t, other.Close(t.Context()))
}

// An answer that comes late does not stretch the deadline, which counts from before the request was sent.
func TestALateAnswerOnTheStreamDoesNotStretchTheDeadline(t *testing.T) {
	const late = 900 * time.Millisecond
	withEtcd(t, func(t *testing.T, c *embedtest.Cluster) {
		s := create(t, c.Client(t))
		awaitLater(t, 1, s)
		answers := c.Delay("LeaseKeepAlive", late, of(s.Lease()))
		before := s.Deadline()
		until(t, func() bool { return s.Deadline().Sub(before) > s.TTL()/6 })
		require.LessOrEqual(t, time.Until(s.Deadline()), s.TTL()-s.TTL()/10-late)
		require.Positive(t, answers.Bites())
	})
}
