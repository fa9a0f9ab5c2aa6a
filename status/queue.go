package status

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/etcdlock/locks/etcdlock"
)

const (
	// freshFor is how old an inspection may be. One that has taken long serves for ten times as long, but not for longer
	// than staleAt.
	freshFor = time.Second
	staleAt  = 15 * time.Second
	// inspectionLimit bounds an inspection. Leases that have not been read by then have no TTL.
	inspectionLimit = 4 * time.Second
	// forgetAfter is when an inspection that nobody looks at is dropped.
	forgetAfter = time.Minute
)

// inspections are those of single locks, by prefix. Viewers of a lock share one: it costs a request for each lease.
type inspections struct {
	mu     sync.Mutex
	latest map[string]*inspection
}

type inspection struct {
	lock  *Lock // as the board had it
	begun time.Time
	done  chan struct{} // closed when all below is set

	ended   time.Time
	queue   Queue
	err     error
	rows    func() []shown   // for streams
	longest map[string]int64 // of each lease, the longest TTL that has been seen
}

// inspect returns a fresh inspection of a lock, or nil if ctx ends before. Its error is in it.
func (f *feed) inspect(ctx context.Context, lock *Lock) *inspection {
	i := f.looks.get(lock, func(i, last *inspection) {
		f.page.background(func() { i.run(f, last) }) // on a closed page ctx ends
	})
	select {
	case <-i.done:
		return i
	case <-ctx.Done():
		return nil
	}
}

// get returns the latest inspection, or has start begin another one.
func (s *inspections) get(lock *Lock, start func(i, last *inspection)) *inspection {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.latest[lock.Prefix]
	if last != nil && last.fresh(lock) {
		return last
	}
	if s.latest == nil {
		s.latest = make(map[string]*inspection)
	}
	for other, i := range s.latest {
		if time.Since(i.begun) > forgetAfter {
			delete(s.latest, other)
		}
	}
	i := &inspection{lock: lock, begun: time.Now(), done: make(chan struct{})}
	s.latest[lock.Prefix] = i
	start(i, last)
	return i
}

// fresh reports whether an inspection is under way, or so new that another one would not be worth its cost.
func (i *inspection) fresh(lock *Lock) bool {
	select {
	case <-i.done:
	default:
		return true
	}
	age, enough := time.Since(i.ended), freshFor
	if i.lock != lock {
		enough = between
	}
	if i.err == nil {
		enough = max(enough, min(10*i.ended.Sub(i.begun), staleAt))
	}
	return age < enough
}

// run inspects at the prefix, which may be one that no name leads to.
func (i *inspection) run(f *feed, last *inspection) {
	defer close(i.done)
	ctx, cancel := context.WithTimeout(f.page.life, inspectionLimit)
	defer cancel()
	q, err := etcdlock.Inspect(ctx, f.client, strings.TrimSuffix(i.lock.Prefix, "/"), etcdlock.AtPrefix())
	q.Name = i.lock.Name
	i.queue, i.ended, i.err = Describe(q), time.Now(), err
	if err != nil && last != nil {
		i.queue = last.queue
	}
	i.longest = make(map[string]int64)
	for _, place := range i.queue.places() {
		i.longest[place.Lease] = place.TTL
		if last != nil {
			i.longest[place.Lease] = max(place.TTL, last.longest[place.Lease])
		}
	}
	i.rows = sync.OnceValue(func() []shown { return i.draw(f.page.slow, time.Time{}) })
}

// late reports whether a lease seems not to be renewed: that is done when a third of it is over.
func (i *inspection) late(p Place) bool { return p.TTL > 0 && 2*p.TTL < i.longest[p.Lease] }

// placeView is what the template of a place shows.
type placeView struct {
	ID, State string
	Level     level
	Place     Place
	Late      bool
	Now       time.Time // zero in streams
}

// Kind is that of the place, and what belongs to it.
func (v placeView) Kind() string {
	switch {
	case v.Place.Weight > 1:
		return fmt.Sprintf("%s ×%d", v.Place.Kind, v.Place.Weight)
	case v.Place.Priority > 0:
		return fmt.Sprintf("%s, priority %d", v.Place.Kind, v.Place.Priority)
	}
	return v.Place.Kind
}

// Left is how long the lease lasts without a renewal.
func (v placeView) Left() string {
	if v.Place.TTL == 0 {
		return "?" // not known, or over
	}
	return ago(time.Duration(v.Place.TTL) * time.Second)
}

// picture is what an inspection shows of a lock. Now is zero for streams.
func (i *inspection) picture(t trouble, slowAfter time.Duration, now time.Time) picture {
	if t.what == "" && i.err != nil {
		t.what = "The lock cannot be read: " + i.err.Error()
	}
	all := len(i.queue.places())
	view := struct {
		Trouble    *troubleView
		Now        time.Time
		Kind       string
		Queue      Queue
		Shown, All int
	}{t.view(), now, kindOf(i.lock.Kind, i.lock.Size), i.queue, min(all, mostRows), all}
	p := picture{Title: readable(i.lock.Name), Head: render("lock-head", view), Foot: render("lock-foot", view)}
	if now.IsZero() {
		p.Rows = i.rows()
	} else {
		p.Rows = i.draw(slowAfter, now)
	}
	return p
}

// draw returns the rows.
func (i *inspection) draw(slowAfter time.Duration, now time.Time) (rows []shown) {
	places := i.queue.places()
	for at, place := range places[:min(len(places), mostRows)] {
		v := placeView{ID: fmt.Sprintf("t%d", place.Token), State: "holds", Level: held, Place: place, Late: i.late(place), Now: now}
		if waiter := at - len(i.queue.Holders); waiter >= 0 {
			v.State = fmt.Sprintf("waits %d", waiter+1)
			v.Level = levelOf(&Lock{Kind: i.lock.Kind, Waiters: 1, Waiting: place.Since}, i.ended, slowAfter)
		} else if v.Late {
			v.Level = slow
		}
		rows = append(rows, shown{v.ID, render("place", v)})
	}
	return rows
}

// places are the holders and the waiters.
func (q Queue) places() []Place { return slices.Concat(q.Holders, q.Waiters) }

// lock returns what is known of a lock by its name: that it is free, if the board does not have it.
func (b *board) lock(name string) *Lock {
	at := slices.IndexFunc(b.rows, func(r *row) bool { return r.lock.Name == name })
	if at < 0 {
		return &Lock{Name: name}
	}
	return b.rows[at].lock
}

// look returns an inspection of a lock, or nil if ctx ends before. What is on no board is not read: a name may lead out of
// the namespace.
func (f *feed) look(ctx context.Context, lock *Lock) *inspection {
	if lock.Prefix == "" {
		return &inspection{lock: lock, queue: Describe(etcdlock.Queue{Name: lock.Name}), rows: func() []shown { return nil }}
	}
	return f.inspect(ctx, lock)
}

func (p *Page) serveLock(v *viewer) {
	name := v.r.URL.Query().Get("name")
	b := v.feed.whole(v.r.Context())
	lock := b.lock(name)
	i := v.feed.look(v.r.Context(), lock)
	if i == nil {
		return // the request is over
	}
	now := time.Now()
	servePage(v.w, frame{
		picture: i.picture(b.trouble, p.slow, now), Heading: p.title, Where: p.where(), Now: now, Lock: name,
	})
}

// serveLockJSON has what the tool's inspect prints.
func (p *Page) serveLockJSON(v *viewer) {
	b := v.feed.whole(v.r.Context())
	if b.unusable(v.w) {
		return
	}
	switch i := v.feed.look(v.r.Context(), b.lock(v.r.URL.Query().Get("name"))); {
	case i == nil: // the request is over
	case i.err != nil:
		http.Error(v.w, i.err.Error(), http.StatusServiceUnavailable)
	default:
		serveJSON(v.w, i.queue)
	}
}
