package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/status"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// queueOf is a lock with a holder and so many waiters, which have come one second after the other.
func queueOf(name string, waiters int) etcdlock.Queue {
	q := etcdlock.Queue{Name: name, Prefix: "etcdlock/" + name + "/", Holding: 1}
	for i := range 1 + waiters {
		q.Places = append(q.Places, etcdlock.Place{
			Key: fmt.Sprintf("%sx%x-0", q.Prefix, i+1), Token: etcdlock.Token(100 + i), Holding: i == 0, Kind: "exclusive",
			Owner: fairqueue.Owner{Host: "host", PID: i + 1, Program: "worker", Since: noon.Add(time.Duration(i-60) * time.Second)},
			Lease: 1, TTL: 9 * time.Second,
		})
	}
	return q
}

// allYielded is what FollowAll yields at last, and when a refusal is over.
var allYielded etcdlock.Queue

// driver presses keys and runs the commands of a model, but not its timers.
type driver struct {
	t        *testing.T
	model    *topModel
	feed     *feed
	queues   map[string]etcdlock.Queue // by prefix, for inspect
	released []status.Place
	err      error // of the next requests
}

func newDriver(t *testing.T) *driver {
	t.Helper()
	d := &driver{t: t, feed: newFeed(), queues: map[string]etcdlock.Queue{}}
	d.model = newTopModel(d.feed, d, `namespace "etcdlock"`)
	d.send(tea.WindowSizeMsg{Width: 100, Height: 12})
	return d
}

func (d *driver) inspect(prefix string) (status.Queue, error) {
	return status.Describe(d.queues[prefix]), d.err
}

func (d *driver) release(p status.Place) error {
	d.released = append(d.released, p)
	return d.err
}

func (d *driver) send(msg tea.Msg) tea.Cmd {
	model, cmd := d.model.Update(msg)
	require.Same(d.t, d.model, model)
	return cmd
}

// put feeds queues, and lets a frame pass.
func (d *driver) put(queues ...etcdlock.Queue) {
	for _, q := range queues {
		d.queues[q.Prefix] = q
		d.feed.put(q, nil)
	}
	d.feed.answered(noon)
	require.NotNil(d.t, d.send(tickMsg(noon)))
}

var keyCodes = map[string]rune{
	"enter": tea.KeyEnter, "esc": tea.KeyEscape, "up": tea.KeyUp, "down": tea.KeyDown, "pgdown": tea.KeyPgDown,
	"end": tea.KeyEnd, "home": tea.KeyHome, "backspace": tea.KeyBackspace,
}

// press presses keys, and gives the model the answers to what it asks for.
func (d *driver) press(keys ...string) (last tea.Cmd) {
	d.t.Helper()
	for _, key := range keys {
		msg := tea.KeyPressMsg{Code: keyCodes[key]}
		if msg.Code == 0 {
			msg = tea.KeyPressMsg{Code: []rune(key)[0], Text: key}
		}
		if last = d.send(msg); last == nil || key == "q" {
			continue
		}
		d.send(last())
	}
	return last
}

// lines are what is on the screen, without styles.
func (d *driver) lines() []string {
	d.t.Helper()
	lines := strings.Split(ansi.Strip(d.model.View().Content), "\n")
	for _, line := range lines {
		require.LessOrEqual(d.t, ansi.StringWidth(line), d.model.width)
	}
	require.LessOrEqual(d.t, len(lines), d.model.height)
	return lines
}

func (d *driver) shows(text string) {
	d.t.Helper()
	require.Contains(d.t, strings.Join(d.lines(), "\n"), text)
}

func (d *driver) hides(text string) {
	d.t.Helper()
	require.NotContains(d.t, strings.Join(d.lines(), "\n"), text)
}

// names are those of the locks on the screen.
func (d *driver) names() (names []string) {
	d.t.Helper()
	for _, line := range d.lines()[3 : len(d.lines())-1] {
		if fields := strings.Fields(line); len(fields) > 0 {
			names = append(names, fields[0])
		}
	}
	return names
}

func TestTopShowsLocksAsTheyAre(t *testing.T) {
	d := newDriver(t)
	d.shows("reading the locks in namespace \"etcdlock\"")
	d.put(queueOf("a", 0), queueOf("b", 2), queueOf("c", 1), allYielded)
	require.Equal(t, []string{"b", "c", "a"}, d.names())
	d.shows("3 locks, 3 waiters in namespace \"etcdlock\", sorted by waiters")
	d.shows("host:1 worker")
	gone := queueOf("b", 0)
	gone.Places = nil
	d.put(gone, queueOf("a", 5))
	require.Equal(t, []string{"a", "c"}, d.names())
	d.shows("2 locks, 6 waiters")
}

func TestTopSortsAndFilters(t *testing.T) {
	d := newDriver(t)
	old := queueOf("old", 0)
	old.Places[0].Owner.Since = noon.Add(-time.Hour)
	d.put(queueOf("Beta", 1), queueOf("alpha", 1), old)
	require.Equal(t, []string{"Beta", "alpha", "old"}, d.names())
	d.press("s")
	require.Equal(t, []string{"old", "Beta", "alpha"}, d.names(), "by the first holder")
	d.press("S", "S")
	require.Equal(t, []string{"Beta", "alpha", "old"}, d.names(), "by name")

	d.press("/", "B", "e")
	require.Equal(t, []string{"Beta"}, d.names())
	d.press("backspace", "backspace", "l")
	d.press("enter")
	require.Equal(t, []string{"alpha", "old"}, d.names())
	d.put(queueOf("later", 0), queueOf("new", 0))
	require.Equal(t, []string{"alpha", "later", "old"}, d.names(), "newcomers are filtered too")
	d.press("esc")
	require.Len(t, d.names(), 5)
	d.press("/", "q")
	require.Empty(t, d.names(), "no key but ctrl+c ends it while text is typed")
}

func TestTopShowsThePartOfALongListAtTheCursor(t *testing.T) {
	d := newDriver(t)
	var queues []etcdlock.Queue
	for i := range 10_000 {
		queues = append(queues, queueOf(fmt.Sprintf("%05d", i), 0))
	}
	d.put(queues...)
	require.Equal(t, "00007", d.names()[7])
	d.press("end")
	require.Equal(t, "09999", d.names()[7])
	d.press("home", "pgdown", "down")
	require.Contains(t, d.names(), "00009")
	d.put(queueOf("00003", 1))
	require.Equal(t, "etcdlock/00009/", d.model.prefix, "the cursor stays with its lock")
	require.Contains(t, d.names(), "00009")
	d.send(tea.WindowSizeMsg{Width: 60, Height: 30})
	require.Len(t, d.names(), 26)
}

func TestTopLooksIntoOneLock(t *testing.T) {
	d := newDriver(t)
	d.put(queueOf("a", 20), queueOf("b", 0))
	d.press("enter")
	d.shows("a, mutex: 1 holders, 20 waiters at etcdlock/a/")
	d.shows("holds  exclusive  host:1 worker")
	d.shows("9s")
	d.press("end")
	d.shows("host:21 worker")
	d.hides("holds")

	shorter := queueOf("a", 2)
	d.queues[shorter.Prefix] = shorter
	d.send(d.send(inspectMsg{shorter.Prefix})())
	d.shows("1 holders, 2 waiters")
	d.shows("host:3 worker")
	d.err = errors.New("no\nway")
	d.send(d.send(inspectMsg{shorter.Prefix})())
	d.shows("no�way")
	d.shows("host:3 worker")

	d.press("esc", "down", "enter")
	require.Nil(t, d.send(inspectedMsg{prefix: shorter.Prefix}), "an answer that comes late is of another view")
	d.err = nil
	d.press("esc", "enter")
	d.shows("b, mutex")
}

func TestTopReleasesAfterAskingTwice(t *testing.T) {
	d := newDriver(t)
	d.put(queueOf("a", 2))
	d.press("r", "y", "R")
	require.Empty(t, d.released, "there is no release in the list of locks")
	d.press("enter", "down", "r")
	d.shows("Release host:2 worker, token 101?")
	d.press("n")
	d.shows("nothing was released")
	d.press("r", "y", "y")
	d.press("r", "R")
	d.press("r", "y", "esc")
	d.shows("nothing was released")
	require.Empty(t, d.released)

	d.press("r", "y")
	d.shows("R: really release host:2 worker, token 101")
	d.queues["etcdlock/a/"] = queueOf("a", 0)
	d.send(d.send(inspectMsg{"etcdlock/a/"})())
	d.press("R")
	require.Len(t, d.released, 1)
	require.Equal(t, int64(101), d.released[0].Token, "what was asked about, whatever has changed since")
	d.shows("released host:2 worker, token 101")
	d.err = etcdlock.ErrStale
	d.press("r", "y", "R")
	d.shows("stale")
}

func TestTopKeepsThePictureWhileEtcdIsAway(t *testing.T) {
	d := newDriver(t)
	d.put(queueOf("a", 1))
	d.send(tickMsg(noon.Add(silentFor)))
	d.hides("has not answered")
	d.send(tickMsg(noon.Add(time.Minute)))
	d.shows("etcd has not answered for 1m0s")
	d.shows("host:1 worker")
	d.press("enter")
	d.shows("etcd has not answered for 1m0s")
	d.press("esc")
	d.feed.answered(noon.Add(time.Minute))
	d.send(tickMsg(noon.Add(time.Minute)))
	d.hides("has not answered")
	d.feed.put(etcdlock.Queue{}, errors.New("permission denied"))
	d.send(tickMsg(noon.Add(time.Minute)))
	d.shows("etcd refuses: permission denied")
	d.shows("host:1 worker")
	d.put(queueOf("b", 1))
	d.shows("refuses")
	d.put(allYielded)
	d.hides("refuses")
}

func TestTopFitsTheTerminal(t *testing.T) {
	d := newDriver(t)
	long := queueOf(strings.Repeat("日本 ", 50), 3)
	d.put(long, queueOf("b\x1b[2J", 0))
	for _, view := range []string{"", "enter", "r"} {
		d.press(strings.Fields(view)...)
		for width := range 130 {
			d.send(tea.WindowSizeMsg{Width: width, Height: width % 20})
			if width >= leastWidth && width%20 >= leastHeight {
				require.Len(t, d.lines(), width%20)
			} else if width > 30 && width%20 > 0 {
				d.shows("too small")
			}
		}
	}
	d = newDriver(t)
	require.Empty(t, d.names())
	d.press("down", "enter", "end", "up", "r")
	require.NotNil(t, d.press("q"))
}

// What a frame costs where all of many locks change, which is rare, and where one does.
func BenchmarkTopFrame(b *testing.B) {
	for _, changed := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("changed=%d", changed), func(b *testing.B) {
			f := newFeed()
			m := newTopModel(f, nil, "")
			m.Update(tea.WindowSizeMsg{Width: 120, Height: 50})
			var queues []etcdlock.Queue
			for i := range 10_000 {
				queues = append(queues, queueOf(fmt.Sprintf("%05d", i), i%3))
				f.put(queues[i], nil)
			}
			for b.Loop() {
				for _, q := range queues[:changed] {
					f.put(q, nil)
				}
				m.Update(tickMsg(noon))
				_ = m.View()
			}
		})
	}
}
