package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/etcdlock/locks/etcdlock"
)

// width is that of the axis.
const width = 84

// timeline is when what happened.
type timeline struct {
	aliceHolds, aliceTrusts, stopped, woken, aliceWrites time.Time
	bobWaits, bobHolds, bobWrites                        time.Time
}

// lane is one line of the picture.
type lane struct {
	name string
	axis func(time.Time) int
	line []rune
}

func (l lane) fill(from, to time.Time, with rune) {
	for i := l.axis(from); i <= l.axis(to); i++ {
		l.line[i] = with
	}
}

func (l lane) String() string {
	return fmt.Sprintf("%-9s%s\n", l.name, strings.TrimRight(string(l.line), " "))
}

// draw draws it to scale.
func (t timeline) draw(alice, bob etcdlock.Token) string {
	begin := t.aliceHolds
	span := t.aliceWrites.Sub(begin) * 105 / 100
	axis := func(at time.Time) int {
		return min(max(int(float64(at.Sub(begin))/float64(span)*(width-1)), 0), width-1)
	}
	newLane := func(name string) lane { return lane{name, axis, []rune(strings.Repeat(" ", 2*width))} }

	scale := newLane("seconds")
	for tenth := range int(span/(100*time.Millisecond)) + 1 {
		at := begin.Add(time.Duration(tenth) * 100 * time.Millisecond)
		if tenth%5 == 0 {
			copy(scale.line[axis(at):], []rune(fmt.Sprintf("|%.1f", at.Sub(begin).Seconds())))
		}
	}
	a, b := newLane("alice"), newLane("bob")
	a.fill(t.aliceHolds, t.stopped, '=')
	a.fill(t.stopped, t.woken, 'z')
	a.fill(t.aliceWrites, t.aliceWrites, 'X')
	b.fill(t.bobWaits, t.bobHolds, '.')
	b.fill(t.bobHolds, t.bobWrites, '=')
	b.fill(t.bobWrites, t.bobWrites, 'W')

	var out strings.Builder
	out.WriteString(scale.String() + a.String() + b.String())
	for _, mark := range []struct {
		at   time.Time
		text string
	}{
		{t.stopped, fmt.Sprintf("SIGSTOP: alice, token %d, stands still", alice)},
		{t.aliceTrusts, "h.Err() would say: lost"},
		{t.bobHolds, fmt.Sprintf("her lease is over: bob, token %d, holds the lock", bob)},
		{t.bobWrites, "W: bob writes"},
		{t.woken, "SIGCONT, and X: alice writes"},
	} {
		l := newLane("")
		column := axis(mark.at)
		l.line[column] = '^'
		text := column + 2
		if left := column - len(mark.text) - 1; left >= 0 && text+len(mark.text) > width {
			text = left
		}
		copy(l.line[text:], []rune(mark.text))
		out.WriteString(l.String())
	}
	fmt.Fprintf(&out, "%-9s= holds the lock   . waits in line   z stopped\n", "")
	return out.String()
}
