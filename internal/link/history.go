package link

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// history is what the answers of etcd have told of its past. A cluster that was restored from a backup, or
// wiped, knows less of it.
//
// Whatever a member shows is committed. So an answer of the quorum is no older than any answer that
// came before the question was sent. Members answer other questions by themselves, renewals included. They
// may be behind for any time, and prove nothing.
type history struct {
	asking atomic.Bool // the quorum, because of a renewal

	mu       sync.Mutex
	cluster  uint64
	revision int64 // the highest that any answer has shown
}

// known returns the highest revision that has been shown so far.
func (h *history) known() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.revision
}

// hear takes in the header of an answer, which cannot be older than least if the cluster is what it was.
// What lacks a header, as what a proxy made up, tells nothing.
func (h *history) hear(header *etcdserverpb.ResponseHeader, least int64) error {
	cluster, revision := header.GetClusterId(), header.GetRevision()
	if cluster == 0 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.cluster != 0 && cluster != h.cluster:
		return fmt.Errorf("another cluster answers: %x instead of %x", cluster, h.cluster)
	case revision < least:
		return wentBack(least, revision)
	}
	h.cluster, h.revision = cluster, max(h.revision, revision)
	return nil
}

func wentBack(from, to int64) error {
	return fmt.Errorf("etcd went back from revision %d to %d", from, to)
}

// Heard takes in the header of an answer that cannot be older than least if the cluster is what it was. If it is
// not, the session ends.
func (l *Link) Heard(header *etcdserverpb.ResponseHeader, least int64) error {
	err := l.history.hear(header, least)
	if err != nil {
		l.session.Lose(err)
	}
	return err
}

// HeardRenewal takes in the header of a renewal's answer. If the member knows less than others have shown, the
// quorum is asked whether that is all there is.
func (l *Link) HeardRenewal(header *etcdserverpb.ResponseHeader) {
	least := l.history.known()
	if l.Heard(header, 0) != nil || header.GetRevision() >= least {
		return
	}
	if l.history.asking.CompareAndSwap(false, true) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.spawn(l.askQuorum)
	}
}

// askQuorum makes a transaction that changes nothing and needs no permission. To etcd it is a write, so
// it is answered as of now. What the answer tells is taken in where it is received.
func (l *Link) askQuorum(ctx context.Context) {
	_, _, _ = l.Commit(ctx, Transaction{Then: []clientv3.Op{clientv3.OpTxn(nil, nil, nil)}, Alone: true})
	l.history.asking.Store(false)
}

// WentBack ends the session as lost: an answer of the quorum was true at revision to, although
// revision from had been shown before the question was sent. It returns the error with which the session has
// ended. It is for those who hear of revisions without the session, as from a watch.
func (l *Link) WentBack(from, to int64) error {
	l.session.Lose(wentBack(from, to))
	return l.session.Err()
}

// quorum reports whether t is answered by the quorum, not by one member for itself.
func (t Transaction) quorum() bool {
	for _, ops := range [][]clientv3.Op{t.Then, t.Else} {
		for _, op := range ops {
			if !op.IsGet() || !op.IsSerializable() {
				return true
			}
		}
	}
	return false
}
