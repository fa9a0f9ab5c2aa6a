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
//
// A revision alone is not enough: other clients may have raised it again, or the operator with
// --bump-revision. The raft term starts anew.
type history struct {
	asking atomic.Bool // the quorum, because of a renewal

	mu      sync.Mutex
	cluster uint64
	latest  position
}

// position is a place in the history of a cluster. Neither number falls.
type position struct {
	term     uint64 // of the raft entry that was applied last; 0 says nothing
	revision int64
}

// known returns the highest position that has been shown so far.
func (h *history) known() position {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.latest
}

func (h *history) observe(header *etcdserverpb.ResponseHeader, earliest position) error {
	cluster, term, revision := header.GetClusterId(), header.GetRaftTerm(), header.GetRevision()
	if cluster == 0 {
		return nil // a proxy made the answer up
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.cluster != 0 && cluster != h.cluster:
		return fmt.Errorf("another cluster answers: %x instead of %x", cluster, h.cluster)
	case revision < earliest.revision:
		return wentBack(earliest.revision, revision)
	case term < earliest.term:
		return fmt.Errorf("etcd went back from raft term %d to %d", earliest.term, term)
	}
	h.cluster = cluster
	h.latest = position{max(h.latest.term, term), max(h.latest.revision, revision)}
	return nil
}

func wentBack(from, to int64) error {
	return fmt.Errorf("etcd went back from revision %d to %d", from, to)
}

// Observe takes in the header of any answer. If another cluster has given it, the session ends.
func (l *Link) Observe(header *etcdserverpb.ResponseHeader) error {
	return l.observe(header, position{})
}

// observe takes in the header of an answer, which is not from before earliest if the cluster is what it was. If it
// is not, the session ends.
func (l *Link) observe(header *etcdserverpb.ResponseHeader, earliest position) error {
	err := l.history.observe(header, earliest)
	if err != nil {
		l.session.Lose(err)
	}
	return err
}

// ObserveRenewal takes in the header of a renewal's answer. If others have shown more than the member
// knows, the quorum is asked whether that is all there is: with a transaction that changes nothing and needs no
// permission. To etcd it is a write, so it is answered as of now.
func (l *Link) ObserveRenewal(header *etcdserverpb.ResponseHeader) {
	known := l.history.known()
	behind := header.GetRevision() < known.revision || header.GetRaftTerm() < known.term
	if l.Observe(header) != nil || !behind || !l.history.asking.CompareAndSwap(false, true) {
		return
	}
	l.Start(func(ctx context.Context) {
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
