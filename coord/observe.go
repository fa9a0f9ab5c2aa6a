package coord

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/internal/request"
)

// read reads the queues below a folder, at one revision.
func (c *common) read(ctx context.Context, folder string) (*lines, error) {
	client, err := c.client(ctx)
	if err != nil {
		return nil, err
	}
	l := newLines(folder)
	return l, c.explain(client, l.read(ctx, client))
}

// explain adds to err what is wrong with the connection, or which permission is missing.
func (c *common) explain(client *clientv3.Client, err error) error {
	if request.IsAnswer(err, rpctypes.ErrPermissionDenied) {
		return fmt.Errorf("%w: the client's user must not read keys that begin with %q", err, c.folder+"/")
	}
	return request.Explain(client, err)
}

// observe follows the queues below a folder. It calls see with every state, or the latest, and the queues that have changed,
// and yield if see has reported a change; with an error, if etcd refuses. It returns when yield has returned false, when ctx ends, or after the error that
// the client is closed.
func observe(ctx context.Context, c *common, folder string, see func(entries map[string][]fairqueue.Entry, queues map[string]bool) bool, yield func(error) bool) {
	client, err := c.client(ctx)
	if err != nil {
		yield(c.failed("observe", err))
		return
	}
	l := newLines(folder)
	var following sync.WaitGroup
	defer following.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	following.Go(func() { l.follow(ctx, client) })
	for {
		select {
		case <-l.news:
		case <-ctx.Done():
			return
		}
		changed := false
		err := l.latest(func(entries map[string][]fairqueue.Entry, queues map[string]bool) { changed = see(entries, queues) })
		if err != nil {
			l.notify() // there may be a state, too
		}
		if (changed || err != nil) && !yield(c.failed("observe", c.explain(client, err))) || errors.Is(err, request.ErrClientClosed) {
			return
		}
	}
}
