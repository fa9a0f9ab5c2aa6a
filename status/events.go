package status

import (
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"
)

// beat is how often a stream has an event at least: the script takes longer silence for a lost connection.
const beat = 3 * time.Second

// message is an event: what has changed in the viewer's picture.
type message struct {
	Version string         `json:"version"` // of the assets
	Now     int64          `json:"now"`     // milliseconds of the server's clock
	Title   string         `json:"title,omitempty"`
	Head    *template.HTML `json:"head,omitempty"`
	Foot    *template.HTML `json:"foot,omitempty"`
	Rows    template.HTML  `json:"rows,omitempty"` // new and changed ones
	Order   *[]string      `json:"order,omitempty"`
}

// sent is the picture that a viewer has.
type sent struct {
	any   bool
	last  picture
	rows  map[string]template.HTML
	order []string
}

// next returns what leads from the picture that the viewer has to p.
func (s *sent) next(p picture, now time.Time) message {
	m := message{Version: version, Now: now.UnixMilli()}
	if p.Title != s.last.Title {
		m.Title = p.Title
	}
	if !s.any || p.Head != s.last.Head {
		m.Head = &p.Head
	}
	if !s.any || p.Foot != s.last.Foot {
		m.Foot = &p.Foot
	}
	rows, order := make(map[string]template.HTML, len(p.Rows)), make([]string, 0, len(p.Rows))
	var other strings.Builder
	for _, r := range p.Rows {
		rows[r.ID], order = r.HTML, append(order, r.ID)
		if s.rows[r.ID] != r.HTML {
			other.WriteString(string(r.HTML))
		}
	}
	m.Rows = template.HTML(other.String())
	if !s.any || !slices.Equal(order, s.order) {
		m.Order = &order
	}
	*s = sent{any: true, last: p, rows: rows, order: order}
	return m
}

// serveEvents sends the changes of all locks, or of the one that is named. A viewer that is slow gets the latest picture
// when it has taken the one before; nothing is kept for it.
func (p *Page) serveEvents(v *viewer) {
	ctx, out := v.r.Context(), newStream(v, p.writeLimit)
	defer out.close()
	if v.r.Method == http.MethodHead {
		return
	}
	draw := p.drawLocks
	if v.r.URL.Query().Has("name") {
		draw = p.drawLock
	}
	v.feed.whole(ctx)
	for s := new(sent); ctx.Err() == nil; {
		picture, changed, wait := draw(v)
		if ctx.Err() != nil || !out.send(ctx, s.next(picture, time.Now())) {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// drawLocks returns a picture, and when to draw the next: when changed is closed, or after wait.
func (p *Page) drawLocks(v *viewer) (_ picture, changed <-chan struct{}, wait time.Duration) {
	b := v.feed.latest()
	return b.picture(p.title, v.r.URL.Query().Get("q"), time.Time{}), b.replaced, beat
}

func (p *Page) drawLock(v *viewer) (_ picture, changed <-chan struct{}, wait time.Duration) {
	b := v.feed.latest()
	lock := b.lock(v.r.URL.Query().Get("name"))
	i := v.feed.look(v.r.Context(), lock)
	switch {
	case i == nil: // the request is over
		return picture{}, nil, beat
	case i.lock != lock: // it is older than the last change
		wait = between
	default:
		wait = beat
	}
	return i.picture(b.trouble, p.slow, time.Time{}), b.replaced, wait
}

// stream is a response of events.
type stream struct {
	to      http.ResponseWriter
	control *http.ResponseController
	limit   time.Duration // of a write
	stop    func() bool   // the watch over ctx
	ended   chan struct{} // closed when that has ended a write
}

func newStream(v *viewer, limit time.Duration) *stream {
	header := v.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store, no-transform")
	header.Set("X-Accel-Buffering", "no") // nginx
	s := &stream{to: v.w, limit: limit, control: http.NewResponseController(v.w), ended: make(chan struct{})}
	s.stop = context.AfterFunc(v.r.Context(), func() {
		defer close(s.ended)
		_ = s.control.SetWriteDeadline(time.Now()) // a write that is blocked ends
	})
	return s
}

// close returns when the response is no longer used.
func (s *stream) close() {
	if !s.stop() {
		<-s.ended
	}
}

// send reports whether the viewer has taken the event.
func (s *stream) send(ctx context.Context, m message) bool {
	text, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Errorf("status: %w", err)) // strings and numbers
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(s.limit)) // where it is not supported, the server's limit counts
	if ctx.Err() != nil {
		return false
	}
	if _, err := fmt.Fprintf(s.to, "retry: 1000\ndata: %s\n\n", text); err != nil {
		return false
	}
	return s.control.Flush() == nil
}
