package fairqueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

const (
	// The client creates the watches of one stream one after the other, so when
	// thousands come at once the last waits for a while.
	firstCreation = 5 * time.Second
	longCreation  = 20 * time.Second

	firstPause = 10 * time.Millisecond
	longPause  = time.Second
)

// watcher waits for the deletion of one key after the other, on behalf of one
// caller, in that caller's goroutine.
type watcher struct {
	session *session.Session
	recheck time.Duration
	stream  int64 // of the last watch

	failures int // in a row
}

func (t *Ticket) watcher() *watcher {
	return &watcher{session: t.session, recheck: t.queue.recheck}
}

// obstacle is what a waiter waits for the end of.
type obstacle struct {
	span      // to watch; without an end it is one key
	puts bool // whether more than deletions matter
	// announced tells what an owner said of itself before the end. Nil if that is not asked for.
	announced func(*clientv3.Event) int64
	ends      func(*clientv3.Event) bool
	stands    func(ctx context.Context, least int64) (stands bool, at int64, err error)
	length    int64 // of the queue, about, if it is long
}

// patience is d, and more where so many wait that what they do without news would keep etcd busy, as
// long as they have not waited for long.
func (o obstacle) patience(d time.Duration) time.Duration {
	return d * time.Duration(min(max(o.length/1000, 1), 6))
}

// name is for a watch that the next one who waits for the same key could use.
func (o obstacle) name() string {
	switch {
	case o.end != "" || o.announced != nil:
		return ""
	case o.puts:
		return "changes of " + o.first
	}
	return "end of " + o.first
}

func (o obstacle) options() []clientv3.OpOption {
	options := []clientv3.OpOption{clientv3.WithRange(o.end)}
	if !o.puts {
		options = append(options, clientv3.WithFilterPut())
	}
	if o.announced != nil {
		options = append(options, clientv3.WithPrevKV())
	}
	return options
}

// news is a reason to look: at revision or later.
type news struct {
	revision int64
	silent   bool // nothing happened for a while; the watch may have missed it
	changed  bool

	announced int64 // by what is gone: that it owned, and how long the queue was
}

// await blocks until there is a reason to look at how things stand with o, which
// stood at revision seen: it has ended, the watch cannot go on, or nothing
// was heard for too long. An error means that there is no point in looking: ctx or
// the session is over, or etcd refuses.
func (w *watcher) await(ctx context.Context, o obstacle, seen int64) (news, error) {
	n, err := w.watch(ctx, o, seen)
	if ctx.Err() != nil {
		return news{}, ctx.Err()
	}
	if w.session.Err() != nil {
		return news{}, w.session.Err()
	}
	if err == nil {
		w.failures = 0
		return n, nil
	}
	if refused(err) {
		return news{}, err
	}
	pause := min(firstPause<<min(w.failures, 10), longPause)
	w.failures++
	timer := time.NewTimer(request.Jitter(pause))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-w.session.Done():
	}
	return news{revision: seen}, nil
}

// watch is await with one watch, whose failure is an error.
func (w *watcher) watch(ctx context.Context, o obstacle, seen int64) (news, error) {
	limit := min(o.patience(firstCreation)<<min(w.failures, 4), longCreation)
	for {
		watch, err := w.session.Link().Watch(ctx, limit, o.name(), o.first, o.options()...)
		if err != nil {
			return news{}, err
		}
		w.stream = watch.Stream
		n, err := w.listen(ctx, o, watch, seen)
		if !errors.Is(err, errEnded) || !watch.Kept {
			return n, err
		}
		w.mistrust() // it had ended before, and what else was kept of its stream has too
	}
}

// listen waits for what watch tells.
func (w *watcher) listen(ctx context.Context, o obstacle, watch *link.Watch, seen int64) (n news, err error) {
	heard := false // of all that the watch has told so far
	defer func() {
		if heard {
			watch.Keep(n.revision)
		} else {
			watch.Stop()
		}
	}()
	if watch.From > seen {
		// What happened between the look and the watch shows here, what happens
		// from now on shows in the watch.
		stands, at, err := o.stands(ctx, watch.From)
		if err != nil {
			return news{}, err
		}
		if !stands {
			heard = !watch.Kept // or nothing would ever show that it is silent
			return news{revision: at, changed: true}, nil
		}
		seen = at
	}
	recheck := o.patience(w.recheck)
	if watch.Kept {
		recheck = min(w.recheck, firstCreation) // about when a new one would be given up that does not begin
	}
	silence := time.NewTimer(request.Jitter(recheck))
	defer silence.Stop()
	for {
		select {
		case response, ok := <-watch.Events:
			if n, last := o.ended(response); n.changed {
				heard = last
				return n, nil
			}
			if err := response.Err(); !ok || err != nil {
				return news{}, errors.Join(errEnded, err)
			}
		case <-silence.C:
			return news{revision: seen, silent: true}, nil
		case <-ctx.Done():
			return news{}, ctx.Err()
		case <-w.session.Done():
			return news{}, w.session.Err()
		}
	}
}

// mistrust makes the next watch use another stream, and so another endpoint.
func (w *watcher) mistrust() { w.session.Link().LeaveStream(w.stream) }

// ended finds the end of the obstacle in what a watch tells, and whether it is the last of that.
func (o obstacle) ended(response clientv3.WatchResponse) (n news, last bool) {
	for i, event := range response.Events {
		if o.ends(event) {
			n = news{revision: event.Kv.ModRevision, changed: true}
			if o.announced != nil {
				n.announced = o.announced(event)
			}
			return n, i == len(response.Events)-1
		}
	}
	return news{}, false
}

// refused reports whether etcd will not change its mind.
func refused(err error) bool {
	return request.IsAnswer(err, rpctypes.ErrPermissionDenied) || request.IsAnswer(err, rpctypes.ErrUserEmpty)
}

// Lost blocks until the ticket is known to be lost, and returns an error that wraps
// [session.ErrLost], or until ctx is over, and returns ctx's error. It hears of a deletion of
// the key within milliseconds, through one watch on it, and about every 10 s it reads the key
// and starts another. Trouble with the watch is no loss: then Lost looks, and watches again. An
// error of another kind says that etcd does not let it look. It runs in the caller's goroutine.
func (t *Ticket) Lost(ctx context.Context) error {
	needContext(ctx)
	w := t.watcher()
	o := t.ownKey()
	seen := t.me.revision
	for {
		news, err := w.await(ctx, o, seen)
		if err != nil {
			return err
		}
		stands, at := false, int64(0)
		if !news.changed {
			stands, at, err = o.stands(ctx, news.revision)
			if err != nil {
				return err
			}
		}
		if !stands {
			if news.silent {
				w.mistrust()
			}
			return fmt.Errorf("ticket %s: %w", t.me.key, ErrGone)
		}
		seen = at
	}
}

// ownKey makes the ticket itself what is waited for.
func (t *Ticket) ownKey() obstacle {
	return obstacle{
		span: span{first: t.me.key},
		ends: func(e *clientv3.Event) bool {
			return e.Type == clientv3.EventTypeDelete && e.Kv.ModRevision > t.me.revision
		},
		stands: func(ctx context.Context, least int64) (bool, int64, error) { return t.present(ctx, t.me, least) },
	}
}
