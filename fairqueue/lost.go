package fairqueue

import (
	"context"
	"fmt"
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
		return t.first().lost(ctx)
	}
	watching, stop := context.WithCancel(ctx)
	losses := make(chan error, len(t.parts))
	var watchers sync.WaitGroup
	for _, p := range t.parts {
		watchers.Go(func() { losses <- p.lost(watching) })
	}
	defer watchers.Wait()
	defer stop()
	return <-losses
}

func (p *part) lost(ctx context.Context) error {
	own := blocker{
		span: span{first: p.me.key},
		endedBy: func(e *clientv3.Event) bool {
			return e.Type == clientv3.EventTypeDelete && e.Kv.ModRevision > p.me.revision
		},
		exists: func(ctx context.Context, minRevision int64) (bool, int64, error) {
			return p.present(ctx, p.me, minRevision)
		},
	}
	w := &watcher{session: p.session, recheck: p.queue.options.recheck()}
	for seen := p.me.revision; ; {
		wakeup, err := w.await(ctx, own, seen)
		if err != nil {
			return err
		}
		exists, at := false, int64(0)
		if !wakeup.ended {
			if exists, at, err = own.exists(ctx, wakeup.revision); err != nil {
				return err
			}
		}
		if !exists {
			if wakeup.timedOut {
				w.switchStream()
			}
			return fmt.Errorf("ticket %s: %w", p.me.key, ErrGone)
		}
		seen = at
	}
}
