package coord

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
)

// read calls see with the keys below a folder, at one revision.
func (c *common) read(ctx context.Context, folder string, see func(keys tree, changed map[string]bool)) error {
	client, err := c.client(ctx)
	if err != nil {
		return err
	}
	m := mirrorBelow(client, folder)
	kvs, _, err := m.source.Read(ctx, 0)
	if err != nil {
		return c.explain(client, err)
	}
	m.Replace(kvs)
	return m.latest(see)
}

// explain adds to err what is wrong with the connection, or which permission is missing.
func (c *common) explain(client *clientv3.Client, err error) error {
	switch {
	case err == nil:
		return nil
	case request.IsAnswer(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("%w: the client's user must not read keys that begin with %q", err, c.folder+"/")
	}
	return request.Explain(client, err)
}

// observe follows the keys below a folder. It calls see with every state, or the latest, and the folders that have changed, and
// yield if see has reported a change; with an error, if etcd refuses. It returns when yield has returned false, when ctx ends, or
// after the error that the client is closed.
func observe(ctx context.Context, c *common, folder string, see func(keys tree, changed map[string]bool) bool, yield func(error) bool) {
	client, err := c.client(ctx)
	if err != nil {
		yield(c.failed("observe", err))
		return
	}
	m := mirrorBelow(client, folder)
	defer m.follow(ctx)()
	for {
		select {
		case <-m.news:
		case <-ctx.Done():
			return
		}
		news := false
		err := m.latest(func(keys tree, changed map[string]bool) { news = see(keys, changed) })
		if news && !yield(nil) || err != nil && !yield(c.failed("observe", c.explain(client, err))) || errors.Is(err, request.ErrClientClosed) {
			return
		}
	}
}
