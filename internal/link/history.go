package link

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// history is what the answers of etcd have shown of its past. A cluster that was restored from a backup, or
// wiped, has less of it.
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

func (h *history) observe(header *etcdserverpb.ResponseHeader, minRevision int64) error {
	cluster, revision := header.GetClusterId(), header.GetRevision()
	if cluster == 0 {
		return nil // a proxy made the answer up
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.cluster != 0 && cluster != h.cluster:
		return fmt.Errorf("another cluster answers: %x instead of %x", cluster, h.cluster)
	case revision < minRevision:
		return wentBack(minRevision, revision)
	}
	h.cluster, h.revision = cluster, max(h.revision, revision)
	return nil
}

func wentBack(from, to int64) error {
	return fmt.Errorf("etcd went back from revision %d to %d", from, to)
}

// Observe takes in the header of an answer, which is not older than minRevision if the cluster is what it was. If it
// is not, the session ends.
func (l *Link) Observe(header *etcdserverpb.ResponseHeader, minRevision int64) error {
	err := l.history.observe(header, minRevision)
	if err != nil {
		l.session.Lose(err)
	}
	return err
}

// ObserveRenewal takes in the header of a renewal's answer. If the member has a lower revision than others have shown,
// the quorum is asked whether that is all there is: with a transaction that changes nothing and needs no
// permission. To etcd it is a write, so it is answered as of now.
func (l *Link) ObserveRenewal(header *etcdserverpb.ResponseHeader) {
	known := l.history.known()
	if l.Observe(header, 0) != nil || header.GetRevision() >= known || !l.history.asking.CompareAndSwap(false, true) {
		return
	}
	l.start(func(ctx context.Context) {
		_, _, _ = l.Commit(ctx, Transaction{Then: []clientv3.Op{clientv3.OpTxn(nil, nil, nil)}})
		l.history.asking.Store(false)
	})
}

// WentBack ends the session as lost: an answer of the quorum was true at revision to, although
// revision from had been shown before the question was sent. It returns the error with which the session has
// ended. It is for revisions that do not come from the session, as from a watch.
func (l *Link) WentBack(from, to int64) error {
	l.session.Lose(wentBack(from, to))
	return l.session.Err()
}
