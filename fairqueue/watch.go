package fairqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/internal/request"
)

const (
	// The client creates the watches of one stream one after the other, so when
	// thousands come at once the last waits for a while.
	firstCreation = 5 * time.Second
	longCreation  = 20 * time.Second
)

// blocker is what a waiter waits for the end of.
type blocker struct {
	span          // to watch; without an end it is one key
	puts     bool // whether puts matter as well as deletions
	previous bool // whether endedBy needs the value before the event
	endedBy  func(*clientv3.Event) bool
	exists   check // asked once, when the watch has started
	recheck  check // asked after a failure or a silence; it may ask more
	length   int64 // of the queue, about, if it is long
}

// untilDeleted is for a ticket, and not for later ones with its key.
func untilDeleted(ticket entry, exists, recheck check) blocker {
	return blocker{
		span: span{first: ticket.key},
		endedBy: func(e *clientv3.Event) bool {
			return e.Type == clientv3.EventTypeDelete && e.Kv.ModRevision > ticket.revision
		},
		exists:  exists,
		recheck: recheck,
	}
}

// check reports whether a blocker exists, at minRevision or later.
type check func(ctx context.Context, minRevision int64) (exists bool, at int64, err error)

// patience is d, and more in a queue so long that rechecks would keep etcd busy.
func (b blocker) patience(d time.Duration) time.Duration {
	return d * time.Duration(min(max(b.length/1000, 1), 6))
}

// name is for a watch that the next waiter for the same key could use.
func (b blocker) name() string {
	if b.end != "" || b.previous {
		return ""
	}
	return fmt.Sprint(b.puts, b.first)
}

func (b blocker) options() []clientv3.OpOption {
	options := []clientv3.OpOption{clientv3.WithRange(b.end)}
	if !b.puts {
		options = append(options, clientv3.WithFilterPut())
	}
	if b.previous {
		options = append(options, clientv3.WithPrevKV())
	}
	return options
}

// wakeup is a reason to look at the queue, at revision or later.
type wakeup struct {
	revision int64
	ended    bool            // the blocker has
	timedOut bool            // there was no event for a while; the watch may have missed one
	stream   int64           // of the watch, then
	by       *clientv3.Event // that ended the blocker; nil if a read found that
}

// until blocks until b has ended, which existed at revision seen. An error means that there is no point in looking:
// ctx or the session is over, or etcd refuses.
func (p *part) until(ctx context.Context, b blocker, seen int64) (wakeup, error) {
	for failures := 0; ; {
		up, err := p.watch(ctx, b, seen, failures)
		switch end := cmp.Or(ctx.Err(), p.session.Err()); {
		case end != nil:
			return wakeup{}, end
		case denies(err):
			return wakeup{}, err
		case err != nil:
			request.Sleep(ctx, p.session.Context(), request.BackOff(failures))
			failures++
		case up.ended:
			return up, nil
		default:
			failures = 0
		}
		exists, at, err := b.recheck(ctx, max(seen, up.revision))
		if err != nil || !exists {
			if err == nil && up.timedOut { // the watch has missed an event
				p.link().LeaveStream(up.stream)
			}
			return wakeup{revision: at}, err
		}
		seen = at
		b.length /= 2 // it has not become longer ahead
	}
}

// watch is until with one watch, whose failure is an error, and whose silence ends it.
func (p *part) watch(ctx context.Context, b blocker, seen int64, failures int) (wakeup, error) {
	limit := min(b.patience(firstCreation)<<min(failures, 4), longCreation)
	for {
		watch, err := p.link().Watch(ctx, limit, b.name(), b.first, b.options()...)
		if err != nil {
			return wakeup{}, err
		}
		up, err := p.receive(ctx, b, watch, seen)
		if !errors.Is(err, errEnded) || !watch.Kept {
			return up, err
		}
		p.link().LeaveStream(watch.Stream) // it had ended before, and other kept watches of its stream have too
	}
}

// receive waits for events of watch.
func (p *part) receive(ctx context.Context, b blocker, watch *link.Watch, seen int64) (up wakeup, err error) {
	complete := false // whether every event that the watch has delivered has been seen
	defer func() {
		if complete {
			watch.Keep(up.revision)
		} else {
			watch.Stop()
		}
	}()
	if watch.From > seen {
		// What happened between the look and the start of the watch shows here, what happens
		// from now on shows in the watch.
		exists, at, err := b.exists(ctx, watch.From)
		if err != nil {
			return wakeup{}, err
		}
		if !exists {
			complete = !watch.Kept // or a silent watch would be kept for ever
			return wakeup{revision: at, ended: true}, nil
		}
		seen = at
	}
	recheck := b.patience(p.queue.options.recheck())
	if watch.Kept {
		recheck = min(recheck, firstCreation) // about when a new watch that does not start would be given up
	}
	silence := time.NewTimer(request.Jitter(recheck))
	defer silence.Stop()
	for {
		select {
		case response, ok := <-watch.Events:
			if up, complete = b.endIn(response); up.ended {
				return up, nil
			}
			if err := response.Err(); !ok || err != nil {
				return wakeup{}, errors.Join(errEnded, err)
			}
		case <-silence.C:
			return wakeup{revision: seen, timedOut: true, stream: watch.Stream}, nil
		case <-ctx.Done():
			return wakeup{}, ctx.Err()
		case <-watch.Ended: // with the session, or because the stream was left
			return wakeup{}, cmp.Or(p.session.Err(), errEnded)
		}
	}
}

// endIn finds the end of the blocker among events, and reports whether it is the last of them.
func (b blocker) endIn(response clientv3.WatchResponse) (up wakeup, last bool) {
	for i, event := range response.Events {
		if b.endedBy(event) {
			return wakeup{revision: event.Kv.ModRevision, ended: true, by: event}, i == len(response.Events)-1
		}
	}
	return wakeup{}, false
}

var errEnded = errors.New("the watch ended")

// denies reports whether etcd is not going to answer otherwise.
func denies(err error) bool {
	return request.IsAnswer(err, rpctypes.ErrPermissionDenied) || request.IsAnswer(err, rpctypes.ErrUserEmpty)
}
