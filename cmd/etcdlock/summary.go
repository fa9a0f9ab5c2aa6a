package main

import (
	"strconv"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/etcdlock/locks/etcdlock"
)

// Kinds of locks, as what is in their queue shows.
const (
	aMutex     = "mutex"
	anRWMutex  = "rwmutex" // a reader holds it or waits
	aSemaphore = "semaphore"
	anElection = "election"
)

// longestOwner is how many columns an owner may take: a candidate's value may be large.
const longestOwner = 60

// summaryJSON is a lock in what "ls -o json" prints, which is an array of them. Fields are added, and keep their
// meaning.
type summaryJSON struct {
	Name    string `json:"name"`
	Prefix  string `json:"prefix"`         // of the queue's keys in etcd
	Kind    string `json:"kind"`           // mutex, rwmutex, semaphore or election
	Size    int64  `json:"size,omitempty"` // of a semaphore
	Holders int    `json:"holders"`
	Waiters int    `json:"waiters"`
	// First is the first holder, without the remaining time of its lease, which inspect shows.
	First *placeJSON `json:"first,omitempty"`
	// Waiting is since when the first waiter is in line, by its own clock.
	Waiting time.Time `json:"waiting_since,omitzero"`
}

func summarize(q etcdlock.Queue) summaryJSON {
	s := summaryJSON{Name: q.Name, Prefix: q.Prefix, Kind: aMutex, Size: q.Size, Holders: q.Holding}
	if q.Size > 0 {
		s.Kind = aSemaphore
	}
	for _, p := range q.Places {
		switch p.Kind {
		case "shared":
			s.Kind = anRWMutex
		case "permit":
			s.Kind = aSemaphore
		case "candidate":
			s.Kind = anElection
		}
		if !p.Holding {
			if s.Waiters++; s.Waiters == 1 {
				s.Waiting = p.Owner.Since
			}
		}
		if p.Holding && s.First == nil {
			first := describePlace(p)
			s.First = &first
		}
	}
	return s
}

func (s summaryJSON) kind() string {
	if s.Size > 0 {
		return s.Kind + " of " + strconv.FormatInt(s.Size, 10)
	}
	return s.Kind
}

func (s summaryJSON) holder() string {
	if s.First == nil {
		return "-"
	}
	return ansi.Truncate(s.First.owner(), longestOwner, "…")
}

// inLine is for how long the first holder has been in line.
func (s summaryJSON) inLine(now time.Time) string {
	if s.First == nil {
		return "-"
	}
	return s.First.inLine(now)
}

// waiting is for how long the first waiter has been in line.
func (s summaryJSON) waiting(now time.Time) string {
	if s.Waiters == 0 {
		return "-"
	}
	return since(s.Waiting, now)
}
