package status

import (
	"cmp"
	"html/template"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// level is how much a lock needs attention.
type level int

const (
	free    level = iota // a semaphore that nobody uses
	held                 // nobody waits, or only candidates for who leads
	waiting              // somebody waits
	slow                 // and the first does so for long
	stuck                // and for very long
)

func (l level) String() string { return [...]string{"free", "held", "waiting", "slow", "stuck"}[l] }

// levelOf compares the clock of the first waiter with now.
func levelOf(l *Lock, now time.Time, slowAfter time.Duration) level {
	waited := now.Sub(l.Waiting)
	switch {
	case l.Holders+l.Waiters == 0:
		return free
	case l.Waiters == 0, l.Kind == Election: // candidates stand by as long as all is well
		return held
	case l.Waiting.IsZero():
		return waiting
	case waited >= 10*slowAfter:
		return stuck
	case waited >= slowAfter:
		return slow
	}
	return waiting
}

// trouble is why a board may be old.
type trouble struct {
	what  string // empty: all is well
	since time.Time
}

// board is all locks at a moment. It does not change.
type board struct {
	replaced chan struct{} // closed when there is a newer one
	loaded   bool          // it has all locks
	trouble  trouble

	rows    []*row // in order
	ids     int    // that have been given to rows so far
	byPlace map[string]*row
	levels  [stuck + 1]int
	waiters int
}

// row is a lock on a board, and on later ones as long as nothing changes.
type row struct {
	id    string
	lock  *Lock
	level level
	html  func() template.HTML // for streams: the times in it are filled in by the script
}

func emptyBoard() *board { return &board{replaced: make(chan struct{})} }

// newBoard keeps what it can of an older one.
func newBoard(old *board, locks map[string]*Lock, now time.Time, slowAfter time.Duration) *board {
	b := &board{replaced: make(chan struct{}), ids: old.ids, byPlace: make(map[string]*row, len(locks))}
	for prefix, lock := range locks {
		level := levelOf(lock, now, slowAfter)
		r := old.byPlace[prefix]
		if r == nil {
			b.ids++
			r = &row{id: "r" + strconv.Itoa(b.ids)}
		}
		if r.lock != lock || r.level != level {
			r = &row{id: r.id, lock: lock, level: level}
			r.html = sync.OnceValue(func() template.HTML { return render("row", rowView{r, time.Time{}}) })
		}
		b.byPlace[prefix] = r
		b.levels[level]++
		if lock.Kind != Election {
			b.waiters += lock.Waiters
		}
	}
	b.rows = slices.SortedFunc(maps.Values(b.byPlace), func(x, y *row) int {
		return cmp.Or(int(y.level-x.level), strings.Compare(x.lock.Name, y.lock.Name), strings.Compare(x.lock.Prefix, y.lock.Prefix))
	})
	return b
}

// same reports whether a viewer would see no difference.
func (b *board) same(other *board) bool {
	return b.loaded == other.loaded && b.trouble == other.trouble && slices.Equal(b.rows, other.rows)
}

// find returns up to limit rows whose names have a text, in any case, and how many there are.
func (b *board) find(text string, limit int) (rows []*row, all int) {
	if text == "" {
		return b.rows[:min(limit, len(b.rows))], len(b.rows)
	}
	text = strings.ToLower(text)
	for _, r := range b.rows {
		if strings.Contains(strings.ToLower(r.lock.Name), text) {
			if all++; all <= limit {
				rows = append(rows, r)
			}
		}
	}
	return rows, all
}
