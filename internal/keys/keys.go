// Package keys creates and removes the keys of tickets, which are bound to the lease of a session.
//
// Invariants:
//
//  1. A key is identified by its name and create revision. Every deletion and every change is conditional on both.
//  2. A name never means two keys at a time: it has the lease, and a number that no other key of the session uses in
//     its folder. The number is free again only when the key is confirmed to be gone and no request that creates it
//     can take effect any more. So a creation that is repeated finds only itself.
//  3. Keys that are created together have one create revision. If the creation fails, none is left, or the session
//     removes them in the background.
//  4. Set replaces only the value that it knows, by its revision. So an attempt that arrives late replaces nothing
//     newer, nor takes a key back from the lease that ReleaseAfter has moved it to.
package keys

import (
	"fmt"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/session"
)

// ErrGone says that a key is not there any more although its session, as far as can be known, is alive.
var ErrGone = fmt.Errorf("%w: the ticket is not there any more", session.ErrLost)

// Folder is where a key is.
type Folder struct {
	Prefix string
	Epochs []string // folders that the key of the session's epoch may be in, the best one first
	// Name is the name of a key with a number.
	Name func(number int) string
}

// Key is one key. Its methods are safe for concurrent use once it has been created.
type Key struct {
	Name     string // in etcd
	Number   int    // in the name
	Revision int64  // create revision
	Value    string // as created

	session *session.Session
	folder  Folder
	*creation
	left atomic.Bool

	turn    chan struct{} // full while a call writes the value, which may use written
	written int64         // revision of the last write, as far as known
}

// creation is what keys that are created together have in common.
type creation struct {
	epoch *link.Epoch // in which the requests were sent
	// unanswered counts the requests that were sent and may still be in flight: one may arrive when the keys have
	// long been given up.
	unanswered int
}

// Keys are some of one session.
type Keys []*Key

// New returns a key that has no name yet.
func New(s *session.Session, f Folder, value string) *Key {
	return &Key{session: s, folder: f, Value: value, turn: make(chan struct{}, 1)}
}

// Claim reserves names. Whether they become free again is up to Create.
func (ks Keys) Claim() {
	c := new(creation)
	for _, k := range ks {
		k.Number, k.creation = k.link().Claim(k.folder.Prefix), c
		k.Name = k.folder.Name(k.Number)
	}
}

func (k *Key) link() *link.Link { return k.session.Link() }

// Guard is a comparison that holds while the key exists.
func (k *Key) Guard() clientv3.Cmp { return CreatedAt(k.Name, k.Revision) }

// Guards returns the guard of each.
func (ks Keys) Guards() []clientv3.Cmp {
	guards := make([]clientv3.Cmp, len(ks))
	for i, k := range ks {
		guards[i] = k.Guard()
	}
	return guards
}

// CreatedAt is clientv3.Compare without its copy of the comparison, which costs more than the rest.
func CreatedAt(name string, revision int64) clientv3.Cmp {
	c := clientv3.CreateRevision(name)
	c.GetCompare().Result = etcdserverpb.Compare_EQUAL
	c.GetCompare().TargetUnion = &etcdserverpb.Compare_CreateRevision{CreateRevision: revision}
	return c
}

// reads reads the keys. Not the keys only: since 3.7 etcd answers that without the lease.
func (ks Keys) reads() []clientv3.Op {
	reads := make([]clientv3.Op, len(ks))
	for i, k := range ks {
		reads[i] = clientv3.OpGet(k.Name)
	}
	return reads
}

// Left reports whether the key has been given up.
func (k *Key) Left() bool { return k.left.Load() }

// Abandon gives the keys up in the background.
func (ks Keys) Abandon() {
	for _, k := range ks.giveUp() {
		k.discard()
	}
}

// Removed is for a key that another request has deleted. The name must not be free twice, so if Leave was called
// meanwhile, that sees to it.
func (k *Key) Removed() { Keys{k}.giveUp().forget() }

// giveUp marks keys as given up, and returns those that had not been.
func (ks Keys) giveUp() (given Keys) {
	for _, k := range ks {
		if !k.left.Swap(true) {
			given = append(given, k)
		}
	}
	return given
}

// discard leaves it to the session to remove the key.
func (k *Key) discard() { k.link().Discard(k.Name, k.Revision, k.forget) }

// forget is for a key that is known not to exist. Its name is free again, unless a
// request that creates it may still arrive.
func (k *Key) forget() {
	number := k.Number // another claim may change it before the doubt ends
	free := func() { k.link().Free(k.folder.Prefix, number) }
	if k.unanswered > 0 {
		k.epoch.Doubt(k.Name, free)
		return
	}
	free()
}

func (ks Keys) forget() {
	for _, k := range ks {
		k.forget()
	}
}
