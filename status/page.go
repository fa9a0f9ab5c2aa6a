package status

import (
	"context"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// policy allows nothing but the page's own style, script and requests.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'"

// Page is an [http.Handler] that shows locks. It is safe for concurrent use.
type Page struct {
	options
	client *clientv3.Client

	life context.Context // ends with Close
	end  context.CancelFunc

	mu      sync.Mutex
	running sync.WaitGroup // requests and goroutines; none is added after Close
	feed    *feed          // nil: nobody has looked for a while
	viewers int            // requests that need the feed
	left    time.Time      // when the last of them ended
	idle    *time.Timer    // ends the feed; nil before the first viewer has left
}

// New returns a Page of the locks that client sees. It makes no request before it is first opened. Close it before
// the client. A nil client or option panics.
func New(client *clientv3.Client, opts ...Option) *Page {
	if client == nil {
		panic("status: New needs a client")
	}
	p := &Page{options: collect(opts), client: client}
	p.life, p.end = context.WithCancel(context.Background())
	return p
}

// Close ends all requests, streams of events included, and waits for them. Later requests are answered with 503
// (Service Unavailable). It may be called again. It makes no request.
func (p *Page) Close() {
	p.mu.Lock()
	p.end()
	if p.idle != nil {
		p.idle.Stop()
	}
	p.mu.Unlock()
	p.running.Wait()
}

// ServeHTTP implements [http.Handler]. Only the end of the request's path matters, so the page can be mounted with
// or without [http.StripPrefix].
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "the page only reads", http.StatusMethodNotAllowed)
		return
	}
	dir, file := path.Split(r.URL.Path)
	handle := map[string]func(*viewer){"": p.serveLocks, "lock": p.serveLock, "events": p.serveEvents}[file]
	if strings.HasSuffix(dir, "/api/") {
		handle = map[string]func(*viewer){"": p.serveLocksJSON, "lock": p.serveLockJSON}[file]
	} else if serveAsset(w, r, file) {
		return
	}
	if handle == nil {
		http.NotFound(w, r)
		return
	}
	v, leave := p.enter(w, r)
	if v == nil {
		http.Error(w, "the page is closed", http.StatusServiceUnavailable)
		return
	}
	defer leave()
	handle(v)
}

// viewer is a request that needs the feed.
type viewer struct {
	w    http.ResponseWriter
	r    *http.Request // its context ends with the page, too
	feed *feed
}

// enter begins a request, until leave is called. Without a viewer the page is closed.
func (p *Page) enter(w http.ResponseWriter, r *http.Request) (v *viewer, leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.Err() != nil {
		return nil, nil
	}
	p.running.Add(1)
	p.viewers++
	if p.feed == nil {
		p.feed = p.newFeed()
	}
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(p.life, cancel)
	return &viewer{w: w, r: r.WithContext(ctx), feed: p.feed}, func() {
		stop()
		cancel()
		p.leave()
		p.running.Done()
	}
}

// background runs do, unless the page is closed. Its life ends do.
func (p *Page) background(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.Err() == nil {
		p.running.Go(do)
	}
}

func (p *Page) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.viewers--
	if p.viewers > 0 || p.life.Err() != nil {
		return
	}
	p.left = time.Now()
	if p.idle == nil {
		p.idle = time.AfterFunc(p.linger, p.rest)
	} else {
		p.idle.Reset(p.linger)
	}
}

// rest ends the feed if nobody has looked for a while.
func (p *Page) rest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.viewers == 0 && p.feed != nil && time.Since(p.left) >= p.linger {
		p.feed.stop()
		p.feed = nil
	}
}
