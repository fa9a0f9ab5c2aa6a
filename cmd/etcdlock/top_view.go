package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/etcdlock/locks/status"
)

const (
	leastWidth, leastHeight = 40, 8

	// frameRows are the lines around the list: title, trouble, header and help.
	frameRows = 4
)

// rows is how many rows of a list are visible.
func (m *topModel) rows() int { return max(1, m.height-frameRows) }

// View implements tea.Model.
func (m *topModel) View() tea.View {
	v := tea.NewView(m.picture())
	v.AltScreen = true
	v.WindowTitle = "etcdlock top"
	return v
}

func (m *topModel) picture() string {
	switch {
	case m.width == 0:
		return ""
	case m.width < leastWidth || m.height < leastHeight:
		return fmt.Sprintf("too small: %d×%d at least", leastWidth, leastHeight)
	case m.detail != nil:
		return m.screen(m.detail.title(), m.detail.table(m.now, m.rows(), m.width), m.detail.help())
	}
	help := "↑↓ select  enter look into it  s sort  / filter  q quit"
	if m.typing {
		help = "filter: " + printable(m.filter) + "▏ enter: keep it, esc: none"
	}
	return m.screen(m.title(), m.table(), help)
}

// screen puts the parts together. Lines are cut to the width, so that none wraps.
func (m *topModel) screen(title string, table []string, help string) string {
	lines := append([]string{bold(title), m.trouble()}, table...)
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	lines = append(lines[:m.height-1], help)
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, m.width, "…")
	}
	return strings.Join(lines, "\n")
}

func (m *topModel) title() string {
	if !m.news.whole {
		return "reading the locks in " + m.where
	}
	text := fmt.Sprintf("%d locks, %d waiters in %s, sorted by %s", len(m.all), m.waiters, m.where, orders[m.order].name)
	if m.filter != "" {
		text += fmt.Sprintf(", %d with %q", len(m.shown), m.filter)
	}
	return text
}

// trouble says why what is shown may not be how it is.
func (m *topModel) trouble() string {
	switch silent := m.now.Sub(m.news.heard); {
	case m.news.refusal != nil:
		return bold("etcd refuses: " + printable(m.news.refusal.Error()))
	case !m.news.heard.IsZero() && silent > silentFor:
		return bold(fmt.Sprintf("etcd has not answered for %v; this is how it was then", silent.Truncate(time.Second)))
	case m.detail != nil && m.detail.err != nil:
		return bold(printable(m.detail.err.Error()))
	case m.detail != nil:
		return m.detail.done
	}
	return ""
}

func (m *topModel) table() []string {
	first, end := m.list.visible(len(m.shown), m.rows())
	rows := [][]string{{"NAME", "KIND", "HOLDERS", "WAITERS", "WAITING", "IN LINE FOR", "FIRST HOLDER"}}
	now := m.now
	for _, s := range m.shown[first:end] {
		rows = append(rows, []string{
			ansi.Truncate(printable(s.Name), max(20, m.width/3), "…"), lockKind(s),
			strconv.Itoa(s.Holders), strconv.Itoa(s.Waiters), waiting(s, now), heldFor(s, now), firstHolder(s),
		})
	}
	return marked(rows, m.list.at-first, m.width)
}

func (d *detail) title() string {
	text := fmt.Sprintf("%s, %s: ", printable(d.lock.Name), lockKind(d.lock))
	if !d.read {
		return text + "reading …"
	}
	return text + fmt.Sprintf("%d holders, %d waiters at %s", len(d.queue.Holders), len(d.queue.Waiters), printable(d.lock.Prefix))
}

func (d *detail) table(now time.Time, rows, width int) []string {
	places := placesOf(d.queue)
	first, end := d.list.visible(len(places), rows)
	part := status.Queue{
		Holders: places[min(first, len(d.queue.Holders)):min(end, len(d.queue.Holders))],
		Waiters: places[max(first, len(d.queue.Holders)):max(end, len(d.queue.Holders))],
	}
	return marked(rowsOf(part, true, now), d.list.at-first, width)
}

func (d *detail) help() string {
	if d.asked > 0 {
		return bold(d.question())
	}
	return "↑↓ select  r release  esc back"
}

// marked aligns rows below a header, and marks one.
func marked(rows [][]string, at, width int) []string {
	lines := strings.Split(strings.TrimSuffix(aligned(rows, nil), "\n"), "\n")
	lines[0] = bold(lines[0])
	if at+1 < len(lines) {
		line := ansi.Truncate(lines[at+1], width, "…")
		lines[at+1] = "\x1b[7m" + line + strings.Repeat(" ", width-ansi.StringWidth(line)) + "\x1b[0m"
	}
	return lines
}
