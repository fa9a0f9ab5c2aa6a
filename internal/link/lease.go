package link

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/etcdlock/locks/internal/request"
)

// longRevocation is the last pause between attempts to revoke a lease.
const longRevocation = 16 * time.Second

// GrantLease grants a lease that is not the session's, with a TTL in seconds. It is a [Link.Call]. The ID is chosen
// here: an attempt whose answer was lost is found again, and if the outcome remains unknown, the lease is
// revoked in the background. Safe for concurrent use.
func (l *Link) GrantLease(ctx context.Context, seconds int64) (clientv3.LeaseID, error) {
	id := 1 + rand.Int64N(math.MaxInt64)
	err := l.Call(ctx, func(ctx context.Context) error {
		_, err := etcdserverpb.NewLeaseClient(l.client.ActiveConnection()).LeaseGrant(ctx,
			&etcdserverpb.LeaseGrantRequest{TTL: seconds, ID: id}, grpc.WaitForReady(true))
		if err = clientv3.ContextError(ctx, err); request.IsAnswer(err, rpctypes.ErrLeaseExist) {
			return nil // from an attempt that was not answered
		}
		return err
	})
	if request.Doubtful(err) {
		l.RevokeLease(clientv3.LeaseID(id))
	}
	return clientv3.LeaseID(id), err
}

// RevokeLease revokes a lease of [Link.GrantLease] in the background, without blocking. That the lease is unknown
// does not end the attempts, since its grant may still be under way. They end after about half a minute, or with the
// session; then the lease expires by itself.
func (l *Link) RevokeLease(id clientv3.LeaseID) {
	l.start(func(ctx context.Context) {
		for pause := time.Second; ; pause *= 2 {
			_, err := request.Attempt(ctx, ctx, request.FirstAttempt, func(ctx context.Context) error {
				_, err := l.client.Revoke(ctx, id)
				return err
			})
			if err == nil || pause > longRevocation || !request.Sleep(ctx, ctx, request.Jitter(pause)) {
				return
			}
		}
	})
}
