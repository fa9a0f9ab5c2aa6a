package fairqueue

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

// deniedTimeout bounds the requests that find out what is not permitted.
const deniedTimeout = time.Second

// denied adds to err what is wrong with the connection, if a context has ended, and if etcd refused for want of a
// permission, which permission for which keys. Etcd's answer does not name it, so
// each is tried in turn: a read, and a write that never takes effect.
func denied(source session.Source, err error, spaces ...space) error {
	has, ok := source.(interface{ Client() *clientv3.Client })
	if !ok {
		return err
	}
	if !request.IsAnswer(err, rpctypes.ErrPermissionDenied) {
		return request.Explain(has.Client(), err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), deniedTimeout)
	defer cancel()
	for _, s := range spaces {
		if what := s.forbidden(ctx, has.Client()); what != "" {
			return fmt.Errorf("%w: the client's user must not %s keys that begin with %q", err, what, s)
		}
	}
	return err
}

func (s space) forbidden(ctx context.Context, client *clientv3.Client) string {
	_, err := client.Get(ctx, s.all().first, clientv3.WithRange(s.all().end), clientv3.WithCountOnly(), clientv3.WithSerializable())
	if request.IsAnswer(err, rpctypes.ErrPermissionDenied) {
		return "read"
	}
	// Etcd looks at the permissions of both branches before it looks at the condition, which never holds.
	_, err = client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(string(s)), "<", 0)).
		Then(clientv3.OpPut(string(s), "")).Commit()
	if request.IsAnswer(err, rpctypes.ErrPermissionDenied) {
		return "write"
	}
	return ""
}
