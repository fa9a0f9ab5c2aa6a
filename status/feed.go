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
	// settled is how long FollowAll yields nothing when it has yielded all that it has read.
	settled = 50 * time.Millisecond

	probeEvery   = time.Second
	probeTimeout = 2 * time.Second
	// silentFor is how long etcd may be silent, or a refusal may last, before that is shown, or forgotten.
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

	loaded chan struct{} // closed when the locks are a whole picture
	dirty  chan struct{} // there may be something to draw
	looks  inspections

	mu      sync.Mutex
	locks   map[string]*Lock // by prefix; what they point to does not change
	yields  int              // of FollowAll
	refusal error            // of etcd, or of the options
	refused time.Time        // when that was
	ended   bool             // FollowAll has, with refusal
	heard   time.Time        // when etcd has answered last
	board   *board           // the latest
}

// newFeed is called with the page's mu locked.
func (p *Page) newFeed() *feed {
	ctx, stop := context.WithCancel(p.life)
	f := &feed{
		page: p, client: p.client, stop: stop, loaded: make(chan struct{}), dirty: make(chan struct{}, 1),
		locks: make(map[string]*Lock), heard: time.Now(), board: emptyBoard(),
	}
	for _, run := range []func(context.Context){f.follow, f.load, f.probe, f.draw} {
		p.running.Go(func() { run(ctx) })
	}
	return f
}

func (f *feed) follow(ctx context.Context) {
	for q, err := range etcdlock.FollowAll(ctx, f.client, f.page.locks()...) {
		f.take(q, err)
		request.Sleep(ctx, ctx, min(between, time.Duration(len(q.Places)/longQueue)*perLongQueue))
	}
	f.change(func() { f.ended = true }) // options that are refused, a client that is closed, or nobody looks
}

func (f *feed) take(q etcdlock.Queue, err error) {
	f.change(func() {
		if f.refusal = err; err != nil {
			f.refused = time.Now()
			return
		}
		f.yields++
		if len(q.Places) == 0 && q.Size == 0 {
			delete(f.locks, q.Prefix)
			return
		}
		l := Summarize(q)
		f.locks[q.Prefix] = &l
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

// load closes loaded when FollowAll has yielded what there is. FollowAll does not say when that is so, but it yields all
// that it has read without a pause. If there is nothing, it yields nothing.
func (f *feed) load(ctx context.Context) {
	const longest = time.Second / settled // where locks change all the time, there is no pause
	for before, rounds := 0, time.Duration(0); ctx.Err() == nil; request.Sleep(ctx, ctx, settled) {
		f.mu.Lock()
		yields := f.yields
		f.mu.Unlock()
		if yields > 0 && (yields == before || rounds > longest) || yields == 0 && f.empty(ctx) {
			close(f.loaded)
			f.change(func() {})
			return
		}
		if before = yields; yields > 0 {
			rounds++
		}
	}
}

// empty reports whether there is no lock.
func (f *feed) empty(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	for _, err := range etcdlock.InspectAll(ctx, f.client, f.page.locks()...) {
		_ = err // FollowAll reports it
		return false
	}
	return true
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
	trouble := f.trouble(now)
	f.mu.Unlock()
	b := newBoard(old, locks, now, f.page.slow)
	b.trouble, b.loaded = trouble, f.isLoaded()
	if b.same(old) {
		return false
	}
	f.mu.Lock()
	f.board = b
	f.mu.Unlock()
	close(old.replaced)
	return true
}

func (f *feed) isLoaded() bool {
	select {
	case <-f.loaded:
		return true
	default:
		return false
	}
}

// trouble says why the locks may not be up to date.
func (f *feed) trouble(now time.Time) trouble {
	switch {
	case f.refusal != nil && (f.ended || now.Sub(f.refused) < silentFor):
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
