package main

import (
	"strconv"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/etcdlock/locks/status"
)

// longestOwner is how many columns an owner may take: a candidate's value may be large.
const longestOwner = 60

func lockKind(l status.Lock) string {
	if l.Size > 0 {
		return l.Kind + " of " + strconv.FormatInt(l.Size, 10)
	}
	return l.Kind
}

func firstHolder(l status.Lock) string {
	if l.First == nil {
		return "-"
	}
	return ansi.Truncate(ownerOf(*l.First), longestOwner, "…")
}

// heldFor is for how long the first holder has been in line.
func heldFor(l status.Lock, now time.Time) string {
	if l.First == nil {
		return "-"
	}
	return since(l.First.Since, now)
}

// waiting is for how long the first waiter has been in line.
func waiting(l status.Lock, now time.Time) string {
	if l.Waiters == 0 {
		return "-"
	}
	return since(l.Waiting, now)
}
