package coord

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/fairqueue"
)

// roster has the first in line for each id, in the order in which they joined.
type roster []Peer

// updateAll takes in the queues that have changed, by their escaped ids, and reports whether members have.
func (r *roster) updateAll(entries map[string][]fairqueue.Entry, queues map[string]bool) (changed bool) {
	if len(*r) == 0 {
		*r = membersIn(entries, "")
		return len(*r) > 0
	}
	for queue := range queues {
		changed = r.update(queue, entries[queue]) || changed
	}
	return changed
}

// update takes in the line for an id, which may be empty.
func (r *roster) update(escaped string, line []fairqueue.Entry) (changed bool) {
	now, valid := peerOf(escaped, line)
	i := slices.IndexFunc(*r, func(p Peer) bool { return p.ID == now.ID })
	if i >= 0 && valid && (*r)[i] == now || i < 0 && !valid {
		return false
	}
	if i >= 0 {
		*r = slices.Delete(*r, i, i+1)
	}
	if valid {
		i, _ = slices.BinarySearchFunc(*r, now, byToken)
		*r = slices.Insert(*r, i, now)
	}
	return true
}

// membersIn returns the members whose queues are in a folder below that of the entries.
func membersIn(entries map[string][]fairqueue.Entry, folder string) roster {
	r := make(roster, 0, len(entries))
	for queue, line := range entries {
		if escaped, ok := strings.CutPrefix(queue, folder); ok {
			if p, ok := peerOf(escaped, line); ok {
				r = append(r, p)
			}
		}
	}
	slices.SortFunc(r, byToken)
	return r
}

// peerOf returns the member of an id. There is none if nobody is in line, or what is there no member has written.
func peerOf(escaped string, line []fairqueue.Entry) (p Peer, ok bool) {
	id, err := url.PathUnescape(escaped)
	p.ID = id
	if err != nil || url.PathEscape(id) != escaped || len(line) == 0 || line[0].Mode != fairqueue.Candidate {
		return p, false
	}
	p.Value, p.Token = string(line[0].Value), etcdlock.Token(line[0].Revision)
	return p, true
}

func byToken(a, b Peer) int { return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.ID, b.ID)) }
