package proof_test

import (
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// grant is a Lock that returned nil, and what etcd has to say about it is still to be seen.
type grant struct {
	what        string
	tickets     []ticketID
	began, done moment
	value       string // of a candidate; empty for others
}

// trust is how long a holder believed in its tickets.
type trust struct {
	what    string
	tickets []ticketID
	last    int64 // when it did for certain
}

// release is an Unlock that returned nil.
type release struct {
	what        string
	tickets     []ticketID
	began, done moment
}

// transfer is one that may have taken effect, or has.
type transfer struct {
	from    ticketID
	to      string // the value
	done    moment
	certain bool // it returned nil
}

// closing is a Close of a session that returned nil.
type closing struct {
	lease       clientv3.LeaseID
	began, done moment
}

// evidence is what clients have been told, to be compared with what has happened in etcd. It is
// guarded by the history's mu.
type evidence struct {
	grants    []grant
	trusts    []trust
	releases  []release
	upgrades  []release // Upgrades that returned nil
	transfers []transfer
	closings  []closing
	struck    map[ticketID]int64         // tickets that an operator has removed, and when
	leases    map[clientv3.LeaseID]int64 // likewise
	refusals  map[string]int             // errors, and how often
}

func newEvidence() evidence {
	return evidence{struck: map[ticketID]int64{}, leases: map[clientv3.LeaseID]int64{}, refusals: map[string]int{}}
}

// compare lists what contradicts what happened in etcd.
func (e *evidence) compare(l *timeline) (wrong []string) {
	note := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	led := map[string]ticketID{}
	for _, g := range e.grants {
		if err := e.granted(l, g); err != nil {
			note("at %v: %s, called at %v, was granted between the revisions %d and %d: %v",
				time.Duration(g.done.at), g.what, time.Duration(g.began.at), g.began.revision, g.done.revision, err)
		}
		if g.value != "" {
			led[g.value] = g.tickets[0]
		}
	}
	for _, b := range e.trusts {
		if err := e.trusted(l, b); err != nil {
			note("%s: %v", b.what, err)
		}
	}
	for _, r := range e.releases {
		for _, id := range r.tickets {
			if t := l.tickets[id]; t != nil && t.deleted > r.done.revision && r.done.ends == r.began.ends {
				note("at %v: %s was unlocked, without an error, at revision %d; its key %s was there until %d",
					time.Duration(r.done.at), r.what, r.done.revision, id.key, t.deleted)
			}
		}
	}
	for _, r := range e.upgrades {
		if !l.upgraded(r.tickets[0], r.began.revision, r.done.revision) && r.done.ends == r.began.ends {
			note("%s returned nil between the revisions %d and %d, and the mark was there", r.what, r.began.revision, r.done.revision)
		}
	}
	wrong = append(wrong, l.upgradedBeside()...)
	for _, c := range e.closings {
		for _, t := range l.tickets {
			if t.lease == c.lease && t.deleted > c.done.revision && c.done.ends == c.began.ends && t.queue() != "etcdlock/slow/" {
				note("at %v: the session of lease %x was closed, without an error, at revision %d; its key %s was there until %d",
					time.Duration(c.done.at), c.lease, c.done.revision, t.key, t.deleted)
			}
		}
	}
	for _, t := range e.transfers {
		if err := e.transferred(l, t, led); t.certain && err != nil {
			note("at %v: the transfer of %s to %s: %v", time.Duration(t.done.at), t.from.key, t.to, err)
		}
	}
	return wrong
}

// granted is the second guarantee of package etcdlock: at some revision during the call the tickets were there, and
// nothing that blocks them.
func (e *evidence) granted(l *timeline, g grant) error {
	last := g.done.revision
	if g.done.ends != g.began.ends {
		last = never - 1 // the member that knew has ended, and the others may have been behind
	}
	return l.ownedTogether(g.tickets, g.began.revision, last)
}

// trusted is the fourth: nobody believes in a ticket that is gone, unless it was removed by hand; and
// not even then for longer than a lease lasts that is renewed no more.
func (e *evidence) trusted(l *timeline, b trust) error {
	for _, id := range b.tickets {
		t := l.tickets[id]
		if t == nil || b.last <= t.deletedAt {
			continue
		}
		_, struck := e.struck[id]
		_, revoked := e.leases[t.lease]
		switch {
		case !struck && !revoked:
			return fmt.Errorf("believed in at %v, and %s was gone by %v, revision %d",
				time.Duration(b.last), id.key, time.Duration(t.deletedAt), t.deleted)
		case revoked && !struck && b.last > t.deletedAt+int64(ttl):
			return fmt.Errorf("believed in at %v, and the lease of %s was revoked by %v",
				time.Duration(b.last), id.key, time.Duration(t.deletedAt))
		}
	}
	return nil
}

// transferred is the promise of Transfer: the named candidate comes next, and is not passed over itself.
func (e *evidence) transferred(l *timeline, t transfer, led map[string]ticketID) error {
	from := l.tickets[t.from]
	if from == nil || from.deleted == never {
		return fmt.Errorf("the leader's key is still there")
	}
	next := l.head(from.queue(), from.deleted)
	switch {
	case e.wasStruck(l, t.from):
		return nil
	case next == nil || next.value != t.to:
		return fmt.Errorf("next was %v, from revision %d", next, from.deleted)
	}
	if id, leads := led[t.to]; leads && id != next.ticketID && !e.wasStruck(l, next.ticketID) && !l.replacedSession(next, id) {
		return fmt.Errorf("%s was first from revision %d until %d, and then it led with %s, from %d", next.key, from.deleted, next.deleted, id.key, id.created)
	}
	return nil
}

// replacedSession reports whether the candidate of a ticket has stood again in another session, after the loss of the first
// one: no ticket of its lease was there any more.
func (l *timeline) replacedSession(first *ticket, again ticketID) bool {
	if t := l.tickets[again]; t == nil || t.lease == first.lease {
		return false
	}
	for _, t := range l.tickets {
		if t.lease == first.lease && t.deleted > first.deleted {
			return false
		}
	}
	return true
}

func (e *evidence) wasStruck(l *timeline, id ticketID) bool {
	_, struck := e.struck[id]
	if t := l.tickets[id]; t != nil && !struck {
		_, struck = e.leases[t.lease]
	}
	return struck
}
