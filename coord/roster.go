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

// updateAll takes in the lines that have changed, of those below a folder, and reports whether members have.
func (r *roster) updateAll(keys tree, changed map[string]bool, folder string) (news bool) {
	first := len(*r) == 0
	for path := range changed {
		if escaped, ok := strings.CutPrefix(path, folder); ok {
			now, valid := peerOf(strings.TrimSuffix(escaped, "/"), keys.line(path))
			if first && valid { // to sort all is faster
				*r = append(*r, now)
			}
			news = !first && r.update(now, valid) || news
		}
	}
	if first {
		slices.SortFunc(*r, byToken)
	}
	return news || first && len(*r) > 0
}

// update takes in the first in line for an id. If it is not valid there is none.
func (r *roster) update(now Peer, valid bool) (changed bool) {
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

// peerOf returns the member of an id. There is none if nobody is in line, or what is there no member has written.
func peerOf(escaped string, line []fairqueue.Entry) (p Peer, ok bool) {
	id, err := url.PathUnescape(escaped)
	switch {
	case err != nil || id == "" || url.PathEscape(id) != escaped:
		return Peer{}, false
	case len(line) == 0 || line[0].Mode != fairqueue.Candidate:
		return Peer{ID: id}, false
	}
	return Peer{id, string(line[0].Value), etcdlock.Token(line[0].Revision)}, true
}

func byToken(a, b Peer) int { return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.ID, b.ID)) }
