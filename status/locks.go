package status

import (
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"
)

// mostRows is how many rows a page has at most.
const mostRows = 1000

// rowView is what the template of a row shows.
type rowView struct {
	*row
	Now time.Time // zero in streams
}

func (v rowView) ID() string   { return v.id }
func (v rowView) Level() level { return v.level }
func (v rowView) Lock() *Lock  { return v.lock }
func (v rowView) Kind() string { return kindOf(v.lock.Kind, v.lock.Size) }
func (v rowView) More() int    { return v.lock.Holders - 1 }

// troubleView is what the template of a banner shows.
type troubleView struct {
	What  string
	Since time.Time
}

func (t trouble) view() *troubleView {
	if t.what == "" {
		return nil
	}
	return &troubleView{t.what, t.since}
}

type tile struct {
	Level level
	Count int
}

// picture is what a board shows of the locks whose names have a text. Now is zero for streams.
func (b *board) picture(title, query string, now time.Time) picture {
	rows, all := b.find(query, mostRows)
	tiles := []tile{{stuck, b.levels[stuck]}, {slow, b.levels[slow]}, {waiting, b.levels[waiting]}, {held, b.levels[held]}, {free, b.levels[free]}}
	view := struct {
		Trouble           *troubleView
		Now               time.Time
		Tiles             []tile
		Loaded            bool
		Query             string
		Shown, All, Total int
	}{b.trouble.view(), now, tiles, b.loaded, query, len(rows), all, len(b.rows)}
	p := picture{Title: b.title(title), Head: render("locks-head", view), Foot: render("locks-foot", view)}
	for _, r := range rows {
		html := r.html
		if !now.IsZero() {
			html = func() template.HTML { return render("row", rowView{r, now}) }
		}
		p.Rows = append(p.Rows, shown{r.id, html()})
	}
	return p
}

// title says first what is wrong, for tabs that are not looked at.
func (b *board) title(title string) string {
	switch {
	case b.trouble.what != "":
		return "(!) " + title
	case b.levels[stuck] > 0:
		return fmt.Sprintf("(%d stuck) %s", b.levels[stuck], title)
	case b.levels[slow] > 0:
		return fmt.Sprintf("(%d slow) %s", b.levels[slow], title)
	}
	return title
}

func (p *Page) serveLocks(v *viewer) {
	b, now := v.feed.whole(v.r.Context()), time.Now()
	query := v.r.URL.Query().Get("q")
	servePage(v.w, frame{
		picture: b.picture(p.title, query, now), Heading: p.title, Where: p.where(), Now: now, Query: query,
	})
}

// serveLocksJSON has the array in the order of the keys, as the tool's list.
func (p *Page) serveLocksJSON(v *viewer) {
	b := v.feed.whole(v.r.Context())
	if b.unusable(v.w) {
		return
	}
	rows, _ := b.find(v.r.URL.Query().Get("q"), len(b.rows))
	locks := make([]*Lock, 0, len(rows))
	for _, r := range rows {
		locks = append(locks, r.lock)
	}
	slices.SortFunc(locks, func(x, y *Lock) int { return strings.Compare(x.Prefix, y.Prefix) })
	serveJSON(v.w, locks)
}

// unusable answers that there is nothing, or nothing new, to show to a program.
func (b *board) unusable(w http.ResponseWriter) bool {
	switch {
	case b.trouble.what != "":
		http.Error(w, b.trouble.what, http.StatusServiceUnavailable)
	case !b.loaded:
		http.Error(w, "etcd has not been read yet", http.StatusServiceUnavailable)
	default:
		return false
	}
	return true
}
