package main

import (
	"fmt"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/etcdlock/locks/status"
)

// detail is the view of one lock.
type detail struct {
	requests requests
	lock     status.Lock
	queue    status.Queue
	read     bool  // the queue was
	err      error // of the last request
	done     string
	list     cursor

	asked int          // questions: before each of them has its answer, nothing is released
	place status.Place // what they are about
}

type (
	inspectMsg   struct{ prefix string } // it is time to read it again
	inspectedMsg struct {
		prefix string
		queue  status.Queue
		err    error
	}
	releasedMsg struct {
		place status.Place
		err   error
	}
)

func newDetail(r requests, lock status.Lock) *detail { return &detail{requests: r, lock: lock} }

// inspect reads the queue.
func (d *detail) inspect() tea.Cmd {
	prefix := d.lock.Prefix
	return func() tea.Msg {
		q, err := d.requests.inspect(prefix)
		return inspectedMsg{prefix, q, err}
	}
}

func (d *detail) update(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case inspectMsg:
		if msg.prefix == d.lock.Prefix {
			return d.inspect()
		}
	case inspectedMsg:
		if msg.prefix != d.lock.Prefix {
			return nil // of a view that was left
		}
		if d.err = msg.err; msg.err == nil {
			d.queue, d.read = msg.queue, true
			d.list.limit(len(placesOf(d.queue)))
		}
		// Each place may have a lease, which is a request.
		pause := time.Second + time.Duration(len(placesOf(d.queue)))*10*time.Millisecond
		return tea.Tick(pause, func(time.Time) tea.Msg { return inspectMsg{msg.prefix} })
	case releasedMsg:
		d.err = msg.err
		if d.done = ""; msg.err == nil {
			d.done = fmt.Sprintf("released %s, token %d", ownerOf(msg.place), msg.place.Token)
		}
	}
	return nil
}

// press reports whether the view is to be left.
func (d *detail) press(key string, rows int) (back bool, cmd tea.Cmd) {
	switch {
	case d.asked == 1 && key == "y":
		d.asked = 2
	case d.asked == 2 && key == "R":
		d.asked = 0
		place := d.place
		return false, func() tea.Msg { return releasedMsg{place, d.requests.release(place)} }
	case d.asked > 0:
		d.asked, d.done = 0, "nothing was released"
	case key == "q", key == "esc", key == "left", key == "backspace":
		return true, nil
	case key == "r":
		if places := placesOf(d.queue); len(places) > 0 {
			d.place, d.asked, d.done = places[d.list.at], 1, ""
		}
	default:
		d.list.press(key, len(placesOf(d.queue)), rows)
	}
	return false, nil
}

// question is what is asked at the moment.
func (d *detail) question() string {
	who := fmt.Sprintf("%s, token %d", ownerOf(d.place), d.place.Token)
	switch d.asked {
	case 1:
		return "Release " + who + "? y: yes, any other key: no"
	case 2:
		return "It goes on until it notices. R: really release " + who + ", any other key: no"
	}
	return ""
}
