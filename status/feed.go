package status

import (
	"context"
	"maps"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/internal/request"
)

const (
	// between is the least time between two updates.
	between = 500 * time.Millisecond
	// glance is how often the board is drawn although nothing happens: waits get longer, and etcd may be away.
	glance = time.Second

	probeEvery   = time.Second
	probeTimeout = 2 * time.Second
	// silentFor is how long etcd may be silent before that is shown.
	silentFor = probeEvery + probeTimeout + time.Second

	// For every longQueue places of a lock the feed pauses so long: each state of it is costly.
	longQueue    = 100
	perLongQueue = 3 * time.Millisecond
)

// feed follows all locks for all viewers, in goroutines that end with its context.
type feed struct {
	page   *Page
	client *clientv3.Client
	stop   context.CancelFunc

	dirty chan struct{} // there may be something to draw
	looks inspections

	mu      sync.Mutex
	locks   map[string]*Lock // by prefix; what they point to does not change
	loaded  bool             // the locks are a whole picture
	refusal error            // of etcd, or of the options; nil when etcd can be read again
	heard   time.Time        // when etcd has answered last
	board   *board           // the latest
}

// newFeed is called with the page's mu locked.
func (p *Page) newFeed() *feed {
	ctx, stop := context.WithCancel(p.life)
	f := &feed{
		page: p, client: p.client, stop: stop, dirty: make(chan struct{}, 1),
		locks: make(map[string]*Lock), heard: time.Now(), board: emptyBoard(),
	}
	for _, run := range []func(context.Context){f.follow, f.probe, f.draw} {
		p.running.Go(func() { run(ctx) })
	}
	return f
}

func (f *feed) follow(ctx context.Context) {
	for q, err := range etcdlock.FollowAll(ctx, f.client, f.page.locks()...) {
		f.take(q, err)
		request.Sleep(ctx, ctx, min(between, time.Duration(len(q.Places)/longQueue)*perLongQueue))
	}
}

func (f *feed) take(q etcdlock.Queue, err error) {
	f.change(func() {
		switch {
		case err != nil:
			f.refusal = err
		case q.Prefix == "": // all locks have been yielded
			f.loaded, f.refusal = true, nil
		case len(q.Places) == 0 && q.Size == 0:
			delete(f.locks, q.Prefix)
		default:
			l := Summarize(q)
			f.locks[q.Prefix] = &l
		}
	})
}

// change calls do with mu locked, and has the board drawn.
func (f *feed) change(do func()) {
	f.mu.Lock()
	do()
	f.mu.Unlock()
	select {
	case f.dirty <- struct{}{}:
	default: // it will be drawn
	}
}

// probe asks etcd for a key all the time: FollowAll does not tell whether etcd is away or nothing happens.
func (f *feed) probe(ctx context.Context) {
	key := f.page.root() + "/"
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, probeTimeout)
		_, err := f.client.Get(limited, key)
		cancel()
		if err == nil || request.Refused(err) {
			f.mu.Lock()
			f.heard = time.Now()
			f.mu.Unlock()
		}
		request.Sleep(ctx, ctx, probeEvery)
	}
}

// draw makes a new board when something has changed.
func (f *feed) draw(ctx context.Context) {
	for {
		timer := time.NewTimer(glance)
		select {
		case <-f.dirty:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
		begin, pause := time.Now(), time.Duration(0)
		if f.redraw(begin) {
			pause = between
		}
		request.Sleep(ctx, ctx, max(pause, 10*time.Since(begin))) // a large board must not take all of a processor
	}
}

// redraw reports whether the new board is another one.
func (f *feed) redraw(now time.Time) bool {
	f.mu.Lock()
	locks, old := maps.Clone(f.locks), f.board
	trouble, loaded := f.trouble(now), f.loaded
	f.mu.Unlock()
	b := newBoard(old, locks, now, f.page.slow)
	b.trouble, b.loaded = trouble, loaded
	if b.same(old) {
		return false
	}
	f.mu.Lock()
	f.board = b
	f.mu.Unlock()
	close(old.replaced)
	return true
}

// trouble says why the locks may not be up to date.
func (f *feed) trouble(now time.Time) trouble {
	switch {
	case f.refusal != nil:
		return trouble{what: "Etcd cannot be read: " + f.refusal.Error()}
	case now.Sub(f.heard) > silentFor:
		return trouble{what: "Etcd does not answer. " + request.Trouble(f.client), since: f.heard}
	}
	return trouble{}
}

// latest returns the board that is to be shown now.
func (f *feed) latest() *board {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.board
}

// whole waits until the board has all locks, or cannot have them. It waits for some seconds only.
func (f *feed) whole(ctx context.Context) *board {
	ctx, cancel := context.WithTimeout(ctx, silentFor+time.Second)
	defer cancel()
	for {
		b := f.latest()
		if b.loaded || b.trouble.what != "" {
			return b
		}
		select {
		case <-b.replaced:
		case <-ctx.Done():
			return b
		}
	}
}
