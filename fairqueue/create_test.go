package fairqueue_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
)

// disowning returns a client that is told err of the first request to create something, which is done all
// the same.
func disowning(t *testing.T, c *embedtest.Cluster, err error) *clientv3.Client {
	t.Helper()
	var told atomic.Bool
	client, failure := clientv3.New(clientv3.Config{
		Endpoints: c.Endpoints(),
		Logger:    zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string,
			request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
		) error {
			answer := invoke(ctx, method, request, reply, conn, opts...)
			if answer == nil && strings.HasSuffix(method, "/Txn") && creating(request) && !told.Swap(true) {
				return err
			}
			return answer
		})},
	})
	require.NoError(t, failure)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// The client sends a request once more, and tells nobody, if a proxy says that it was cancelled. And etcd
// says that it has no space of what it has done as well, if there was some when the request came.
func TestAJoinThatWasAppliedAndReportedAsFailedFindsItself(t *testing.T) {
	for reason, said := range map[string]error{
		"sent twice": status.Error(codes.Canceled, "stream terminated by RST_STREAM"),
		"no space":   rpctypes.ErrGRPCNoSpace,
		"no answer":  status.Error(codes.Unavailable, "error reading from server: EOF"),
	} {
		for how, way := range ways {
			t.Run(reason+", "+how, func(t *testing.T) {
				c, client := begin(t)
				s := open(t, disowning(t, c, said))
				ticket, err := way.take(queueAt(s, "q"), within(t, patience), way.mode)
				require.NoError(t, err)
				require.NoError(t, ticket.Wait(within(t, patience)))
				require.Equal(t, []string{ticket.Key()}, keysUnder(t, client, "q"), "one ticket")
				require.Equal(t, revisionOf(t, client, ticket.Key()), ticket.Revision())
				leave(t, ticket)
				require.Empty(t, keysUnder(t, client, "q"))
				again := hold(t, queueAt(s, "q"), way.mode)
				require.Equal(t, ticket.Key(), again.Key(), "no request can be under way any more")
			})
		}
	}
}

// Or else a service that goes on trying would fill its memory with what it watches over.
func TestWhatEtcdHasNoSpaceForLeavesNothingToWatchOver(t *testing.T) {
	for how, way := range ways {
		t.Run(how, func(t *testing.T) {
			c, client := begin(t)
			s := open(t, client)
			c.Refuse("Txn", rpctypes.ErrGRPCNoSpace, embedtest.When(creating), embedtest.Times(3))
			for range 3 {
				require.ErrorIs(t, way.join(within(t, patience), queueAt(s, "q")), rpctypes.ErrNoSpace)
			}
			require.Equal(t, nameOf(s, way.mode, 0), hold(t, queueAt(s, "q"), way.mode).Key(), "the name is free")
		})
	}
}

// A user that may use the queue's prefix only is refused the epoch beside it. Calls that come at the same time find
// that out together.
func TestCallsThatAreRefusedTheSameEpochUseTheNext(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, embedtest.WithAuth("root", embedtest.User{
		Name: "u", Password: "u", Grants: []embedtest.Grant{embedtest.ReadWrite("locks/q/")},
	}))
	s := open(t, c.ClientAs(t, "u"))
	q := queueAt(s, "locks/q")
	held := c.Hold("Txn", embedtest.Once(), embedtest.When(creating))
	require.NoError(t, during(t, held, func() error { return ways["join"].join(within(t, patience), q) }, func() {
		join(t, q, fairqueue.Exclusive)
	}))
}

// One transaction is in one epoch, however many folders its queues are in.
func TestAGroupNeedsOneEpoch(t *testing.T) {
	c, client := begin(t)
	s := open(t, client)
	places := make([]fairqueue.Place, 127)
	for i := range places {
		places[i] = fairqueue.Place{Queue: queueAt(s, fmt.Sprintf("orders/%d/lock", i)), Mode: fairqueue.Exclusive}
	}
	g := joinAll(t, s, places...)
	require.True(t, g.Granted())
	leave(t, g)

	held := c.Hold("Txn", embedtest.Once(), embedtest.When(creating))
	givesUp(t, held, func(ctx context.Context) error { return errorOf(fairqueue.JoinN(ctx, s, len(places), places...)) })
	eventually(t, "the epoch of the first has begun", func() bool {
		return revisionOf(t, client, fmt.Sprintf("orders/0/!/epoch/%x", s.Lease())) > 0
	})
	held.Heal()
	g, err := fairqueue.TryN(within(t, patience), s, len(places), places...)
	require.NoError(t, err)
	leave(t, g)
}
