package keys

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Set replaces the value, if the key is still there and has not been given up. Concurrent calls take turns. If ctx ends
// before etcd answers, the value may have been replaced or not, or may yet be, but no more once a later Set has
// returned nil.
func (k *Key) Set(ctx context.Context, value string) error {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	put := clientv3.OpPut(k.Name, value, clientv3.WithLease(k.session.Lease()))
	for {
		unchanged := clientv3.Compare(clientv3.ModRevision(k.Name), "=", k.written)
		var answer *clientv3.TxnResponse
		err := k.link().Call(ctx, func(ctx context.Context) (err error) {
			answer, err = k.session.Client().Txn(ctx).If(unchanged).Then(put).Else(clientv3.OpGet(k.Name)).Commit()
			return err
		})
		switch {
		case err != nil:
			return err
		case answer.Succeeded:
			k.written = answer.Header.Revision
			return nil
		}
		own := answer.Responses[0].GetResponseRange().Kvs
		if len(own) == 0 || own[0].CreateRevision != k.Revision || k.Left() {
			return ErrGone // or given up by ReleaseAfter, which is not to be undone
		}
		k.written = own[0].ModRevision
		if string(own[0].Value) == value && clientv3.LeaseID(own[0].Lease) == k.session.Lease() {
			return nil // by an attempt whose answer was lost
		}
	}
}

// SetFirst replaces the value with which the key was created, and returns the revision of that. It returns 0 if the key
// may not be there, or has another value: if an attempt arrives late, Set or ReleaseAfter may have written. It must have
// returned before Set is called.
func (k *Key) SetFirst(ctx context.Context, value string) (at int64) {
	_ = k.link().Call(ctx, func(ctx context.Context) error {
		answer, err := k.session.Client().Txn(ctx).
			If(k.Guard(), clientv3.Compare(clientv3.Version(k.Name), "=", 1)).
			Then(clientv3.OpPut(k.Name, value, clientv3.WithLease(k.session.Lease()))).Commit()
		if err == nil && answer.Succeeded {
			at = answer.Header.Revision
			k.written = at
		}
		return err
	})
	return at
}
