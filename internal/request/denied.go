package request

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// deniedTimeout bounds the requests that find out what is not permitted.
const deniedTimeout = time.Second

// Denied adds to err, etcd's answer that a permission is missing, which one and for which of the prefixes. Etcd does
// not name it, so each is tried in turn, for as long as ctx lasts.
func Denied(ctx context.Context, client *clientv3.Client, err error, prefixes ...string) error {
	ctx, cancel := context.WithTimeout(ctx, deniedTimeout)
	defer cancel()
	for _, prefix := range prefixes {
		if what := forbidden(ctx, client, prefix); what != "" {
			return fmt.Errorf("%w: the client's user must not %s keys that begin with %q", err, what, prefix)
		}
	}
	return err
}

// forbidden returns "read" or "write" if that is not permitted. It makes a read, and a write that never takes effect.
func forbidden(ctx context.Context, client *clientv3.Client, prefix string) string {
	_, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithSerializable())
	if IsAnswer(err, rpctypes.ErrPermissionDenied) {
		return "read"
	}
	// Etcd looks at the permissions of both branches before it looks at the condition, which never holds.
	_, err = client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(prefix), "<", 0)).
		Then(clientv3.OpPut(prefix, "")).Commit()
	if IsAnswer(err, rpctypes.ErrPermissionDenied) {
		return "write"
	}
	return ""
}
