package stage

import (
	"context"
	"crypto/rand"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Meet waits until n processes, or goroutines, have come to that place, this one included. It is
// for stories in which something has to happen at the same time for certain, rather than with luck.
func (e *Etcd) Meet(ctx context.Context, place string, n int64) error {
	place = e.Prefix + "meet/" + place + "/"
	if _, err := e.Client.Put(ctx, place+rand.Text(), ""); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of the watch
	there, err := e.Client.Get(ctx, place, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	count := there.Count
	arrivals := e.Client.Watch(ctx, place, clientv3.WithPrefix(), clientv3.WithRev(there.Header.Revision+1))
	for count < n {
		came, ok := <-arrivals
		if err := came.Err(); err != nil || !ok {
			return errors.Join(err, context.Cause(ctx))
		}
		count += int64(len(came.Events))
	}
	return nil
}
