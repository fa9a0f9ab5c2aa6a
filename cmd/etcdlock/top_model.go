package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/etcdlock/locks/status"
)

const (
	// frame is the time between two pictures.
	frame = 250 * time.Millisecond

	// silentFor is how long etcd may be silent before that is shown.
	silentFor = probeEvery + probeTimeout + time.Second
)

// orders are the ways to sort locks. Names are the last criterion of each.
var orders = []struct {
	name    string
	compare func(a, b status.Lock) int
}{
	{"waiters", func(a, b status.Lock) int { return b.Waiters - a.Waiters }},
	{"first holder", func(a, b status.Lock) int { return begin(a).Compare(begin(b)) }},
	{"first waiter", func(a, b status.Lock) int { return orLast(a.Waiting).Compare(orLast(b.Waiting)) }},
	{"name", func(status.Lock, status.Lock) int { return 0 }},
}

// begin is since when the first holder is in line.
func begin(s status.Lock) time.Time {
	if s.First == nil {
		return orLast(time.Time{})
	}
	return orLast(s.First.Since)
}

// orLast puts unknown times behind all others.
func orLast(t time.Time) time.Time {
	if t.IsZero() {
		return time.Unix(1<<40, 0)
	}
	return t
}

// requests are what a top does besides showing what it is fed.
type requests interface {
	inspect(prefix string) (status.Queue, error)
	release(status.Place) error
}

// topModel is the state of a top. Update and View make no request: their commands do.
type topModel struct {
	feed     *feed
	requests requests
	where    string

	now           time.Time
	width, height int

	all     map[string]status.Lock // by prefix
	shown   []status.Lock          // those that pass the filter, in order
	waiters int                    // of all
	news    news                   // without the locks
	order   int
	filter  string
	typing  bool // the filter
	list    cursor
	prefix  string // of the lock at the cursor
	detail  *detail
}

type tickMsg time.Time

func newTopModel(f *feed, r requests, where string) *topModel {
	return &topModel{feed: f, requests: r, where: where, now: time.Now(), all: map[string]status.Lock{}}
}

func tick() tea.Cmd { return tea.Tick(frame, func(t time.Time) tea.Msg { return tickMsg(t) }) }

// Init implements tea.Model.
func (m *topModel) Init() tea.Cmd { return tick() }

// Update implements tea.Model.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tickMsg:
		m.now = time.Time(msg)
		m.feedOn()
		return m, tick()
	case tea.KeyPressMsg:
		return m, m.press(msg)
	case tea.PasteMsg:
		if m.typing {
			m.setFilter(m.filter + msg.Content)
		}
	case inspectedMsg, inspectMsg, releasedMsg:
		if m.detail != nil {
			return m, m.detail.update(msg)
		}
	}
	return m, nil
}

// feedOn takes in what has changed.
func (m *topModel) feedOn() {
	n := m.feed.take()
	for prefix, s := range n.changed {
		m.waiters += s.Waiters - m.all[prefix].Waiters
		if m.all[prefix] = s; s.Kind == "" {
			delete(m.all, prefix)
		}
	}
	m.news = news{whole: n.whole, refusal: n.refusal, heard: n.heard}
	if len(n.changed) > 0 {
		m.arrange()
	}
}

// arrange filters and sorts. The cursor stays with its lock.
func (m *topModel) arrange() {
	m.shown = m.shown[:0]
	for _, s := range m.all {
		if strings.Contains(strings.ToLower(s.Name), strings.ToLower(m.filter)) {
			m.shown = append(m.shown, s)
		}
	}
	compare := orders[m.order].compare
	slices.SortFunc(m.shown, func(a, b status.Lock) int {
		return cmp.Or(compare(a, b), strings.Compare(a.Name, b.Name), strings.Compare(a.Prefix, b.Prefix))
	})
	if at := slices.IndexFunc(m.shown, func(s status.Lock) bool { return s.Prefix == m.prefix }); at >= 0 && m.list.at > 0 {
		m.list.at = at // at the top it stays there, to show what comes first
	}
	m.list.limit(len(m.shown))
	m.remember()
}

func (m *topModel) remember() {
	m.prefix = ""
	if len(m.shown) > 0 {
		m.prefix = m.shown[m.list.at].Prefix
	}
}

func (m *topModel) setFilter(text string) {
	m.filter, m.list = text, cursor{}
	m.arrange()
}

func (m *topModel) press(key tea.KeyPressMsg) tea.Cmd {
	name := key.String()
	switch {
	case name == "ctrl+c":
		return tea.Quit
	case m.typing:
		m.typeFilter(key)
		return nil
	case m.detail != nil:
		back, cmd := m.detail.press(name, m.rows())
		if back {
			m.detail = nil
		}
		return cmd
	}
	switch name {
	case "q":
		return tea.Quit
	case "esc":
		m.setFilter("")
	case "/":
		m.typing = true
	case "s", "S":
		step := map[string]int{"s": 1, "S": len(orders) - 1}[name]
		m.order, m.list = (m.order+step)%len(orders), cursor{}
		m.arrange()
	case "enter":
		if len(m.shown) > 0 {
			m.detail = newDetail(m.requests, m.shown[m.list.at])
			return m.detail.inspect()
		}
	default:
		m.list.press(name, len(m.shown), m.rows())
		m.remember()
	}
	return nil
}

func (m *topModel) typeFilter(key tea.KeyPressMsg) {
	switch key.String() {
	case "enter":
		m.typing = false
	case "esc":
		m.typing = false
		m.setFilter("")
	case "backspace":
		r := []rune(m.filter)
		m.setFilter(string(r[:max(0, len(r)-1)]))
	default:
		m.setFilter(m.filter + key.Text)
	}
}

// cursor is a place in a list of which a part is visible.
type cursor struct{ at, top int }

func (c *cursor) press(key string, count, rows int) {
	switch key {
	case "up", "k":
		c.at--
	case "down", "j":
		c.at++
	case "pgup", "ctrl+b":
		c.at -= rows
	case "pgdown", "ctrl+f", "space":
		c.at += rows
	case "home", "g":
		c.at = 0
	case "end", "G":
		c.at = count - 1
	}
	c.limit(count)
}

func (c *cursor) limit(count int) { c.at = max(0, min(c.at, count-1)) }

// visible scrolls so that the cursor is visible, and returns what is.
func (c *cursor) visible(count, rows int) (first, end int) {
	c.top = max(0, min(c.top, c.at, count-rows))
	c.top = max(c.top, c.at-rows+1)
	return c.top, min(count, c.top+rows)
}
