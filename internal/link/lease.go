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
	id := clientv3.LeaseID(1 + rand.Int64N(math.MaxInt64))
	unanswered := false
	err := l.Call(ctx, func(ctx context.Context) (err error) {
		id, err = l.grant(ctx, id, seconds)
		if unanswered && request.IsAnswer(err, rpctypes.ErrLeaseExist) {
			return nil
		}
		unanswered = unanswered || request.Doubtful(err)
		return err
	})
	if request.Doubtful(err) {
		l.RevokeLease(id)
	}
	return id, err
}

func (l *Link) grant(ctx context.Context, id clientv3.LeaseID, seconds int64) (clientv3.LeaseID, error) {
	if conn := l.client.ActiveConnection(); conn != nil {
		_, err := etcdserverpb.NewLeaseClient(conn).LeaseGrant(ctx,
			&etcdserverpb.LeaseGrantRequest{TTL: seconds, ID: int64(id)}, grpc.WaitForReady(true))
		return id, clientv3.ContextError(ctx, err)
	}
	granted, err := l.client.Grant(ctx, seconds) // a client made by hand; its method chooses the ID
	if err != nil {
		return id, err
	}
	return granted.ID, nil
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
