package status

import (
	"fmt"
	"time"

	"github.com/etcdlock/locks/etcdlock"
)

// Kinds of locks, as far as their queues show them.
const (
	Mutex     = "mutex"
	RWMutex   = "rwmutex" // a reader holds it or waits
	Semaphore = "semaphore"
	Election  = "election"
)

// Lock is a lock in the array of the page's /api/ and of "etcdlock ls -o json". Later versions may add fields, and
// keep the meaning of these.
type Lock struct {
	Name    string `json:"name"`
	Prefix  string `json:"prefix"`         // of the queue's keys in etcd
	Kind    string `json:"kind"`           // mutex, rwmutex, semaphore or election
	Size    int64  `json:"size,omitempty"` // of a semaphore
	Holders int    `json:"holders"`
	Waiters int    `json:"waiters"`
	// First is the first holder, without the remaining time of its lease.
	First *Place `json:"first,omitempty"`
	// Waiting is since when the first waiter is in line, by its own clock.
	Waiting time.Time `json:"waiting_since,omitzero"`
}

// Queue is a lock with all its holders and waiters, as in the page's /api/lock and in "etcdlock inspect -o json".
// Later versions may add fields, and keep the meaning of these.
type Queue struct {
	Name    string  `json:"name"`
	Prefix  string  `json:"prefix"`         // of the queue's keys in etcd
	Size    int64   `json:"size,omitempty"` // of a semaphore
	Holders []Place `json:"holders"`        // in the order in which they came
	Waiters []Place `json:"waiters"`        // in line
}

// Place is a holder or a waiter.
type Place struct {
	Key      string    `json:"key"`
	Token    int64     `json:"token"`
	Kind     string    `json:"kind"` // exclusive, shared, upgradeable, permit or candidate
	Host     string    `json:"host,omitempty"`
	PID      int       `json:"pid,omitempty"`
	Program  string    `json:"program,omitempty"`
	Label    string    `json:"label,omitempty"`
	Since    time.Time `json:"since,omitzero"`     // when it joined the line, by its own clock
	Value    string    `json:"value,omitempty"`    // of a candidate, and of another program's key
	Weight   int64     `json:"weight,omitempty"`   // permits
	Priority int       `json:"priority,omitempty"` // of a candidate
	Lease    string    `json:"lease"`              // hexadecimal, as etcdctl prints it
	TTL      int64     `json:"ttl"`                // seconds until the lease ends without being renewed; 0: not known
}

// Summarize returns the short form of a queue.
func Summarize(q etcdlock.Queue) Lock {
	l := Lock{Name: q.Name, Prefix: q.Prefix, Kind: Mutex, Size: q.Size, Holders: q.Holding}
	if q.Size > 0 {
		l.Kind = Semaphore
	}
	for _, p := range q.Places {
		switch p.Kind {
		case "shared", "upgradeable":
			l.Kind = RWMutex
		case "permit":
			l.Kind = Semaphore
		case "candidate":
			l.Kind = Election
		}
		if !p.Holding {
			if l.Waiters++; l.Waiters == 1 {
				l.Waiting = p.Owner.Since
			}
		}
		if p.Holding && l.First == nil {
			first := placeOf(p)
			l.First = &first
		}
	}
	return l
}

// Describe returns the long form of a queue.
func Describe(q etcdlock.Queue) Queue {
	d := Queue{Name: q.Name, Prefix: q.Prefix, Size: q.Size, Holders: []Place{}, Waiters: []Place{}}
	for _, p := range q.Places {
		if place := placeOf(p); p.Holding {
			d.Holders = append(d.Holders, place)
		} else {
			d.Waiters = append(d.Waiters, place)
		}
	}
	return d
}

func placeOf(p etcdlock.Place) Place {
	place := Place{
		Key: p.Key, Token: int64(p.Token), Kind: p.Kind, Host: p.Owner.Host, PID: p.Owner.PID,
		Program: p.Owner.Program, Label: p.Owner.Label, Since: p.Owner.Since, Value: p.Value, Weight: p.Weight,
		Priority: p.Priority, Lease: fmt.Sprintf("%x", int64(p.Lease)), TTL: int64(p.TTL / time.Second),
	}
	if place.Host != "" {
		place.Value = "" // which is where the owner stands
	}
	return place
}
