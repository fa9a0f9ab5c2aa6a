package session

import (
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Shortcut is what may be asked of etcd in place of a transaction that would do more: if its conditions
// hold, its answer will do as well. The caller tells by the answer's responses which it was. If they do not hold,
// all that it went out with costs a second request, so it is to be given where it will most likely hold.
// The more of them have been in vain lately, the fewer requests are made with shortcuts.
type Shortcut struct {
	If   []clientv3.Cmp
	Then []clientv3.Op
}

// longCaution is for how many requests there are no shortcuts at most.
const longCaution = 63

// caution is what a route has learnt from requests with shortcuts. It doubles with each that was in vain,
// whosever fault that was, and becomes one less with each that was not. If one in twenty would be in vain nearly
// all are tried, if one in ten a quarter, if one in five a fourteenth; so at most about one request
// in twenty is made twice.
type caution struct {
	length int // of the next break
	left   int // requests to go in this one
}

// dares reports whether a request may be made with shortcuts, of those who have one.
func (r *route) dares(passengers []*passenger) bool {
	if !slices.ContainsFunc(passengers, func(p *passenger) bool { return p.Shortcut != nil }) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.caution.left > 0 {
		r.caution.left--
		return false
	}
	return true
}

// learn is called when it has been.
func (r *route) learn(held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := &r.caution; held {
		c.length = max(c.length-1, 0)
	} else {
		c.length = min(2*c.length+1, longCaution)
		c.left = c.length
	}
}
