package fairqueue

import (
	"cmp"
	"context"
	"errors"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Lost blocks until the ticket is known to be lost, and returns an error that wraps
// [session.ErrLost], or until ctx is over, and returns ctx's error. The loss of one of several keys
// is the loss of the ticket. A deletion is noticed within milliseconds, through one watch on each
// key. About every 10 s Lost reads the key and starts another watch. Failures of the watch are no
// loss: Lost reads the key, and watches again. An error of another kind says that etcd refuses. It
// runs in the caller's goroutine, and in one for each of several keys.
func (t *Ticket) Lost(ctx context.Context) error {
	needContext(ctx)
	if len(t.parts) == 1 {
		return t.lost(t.first().lost(ctx))
	}
	watching, stop := context.WithCancel(ctx)
	losses := make(chan error, len(t.parts))
	var watchers sync.WaitGroup
	for _, p := range t.parts {
		watchers.Go(func() { losses <- p.lost(watching) })
	}
	defer watchers.Wait()
	defer stop()
	return t.lost(<-losses)
}

// lost adds to err what it is about, unless the session has ended, which is about all its tickets.
func (t *Ticket) lost(err error) error {
	if t.Session().Err() != nil && !errors.Is(err, ErrGone) {
		return err
	}
	return t.failed(err)
}

func (p *part) lost(ctx context.Context) error {
	there := p.present(p.me)
	_, err := p.watcher().until(ctx, blocker{
		span: span{first: p.me.key},
		endedBy: func(e *clientv3.Event) bool {
			return e.Type == clientv3.EventTypeDelete && e.Kv.ModRevision > p.me.revision
		},
		exists:  there,
		recheck: there,
	}, p.me.revision)
	return cmp.Or(err, ErrGone)
}
