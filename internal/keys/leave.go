package keys

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/internal/request"
)

// Leave deletes, in one transaction, those of the keys that have not been given up yet. The error is ErrGone if one of
// them was not there. If etcd does not answer before ctx ends, the session goes on. Even if ctx is over, or ends at
// once, etcd gets a quarter of a second.
func (ks Keys) Leave(ctx context.Context) error {
	ks = ks.giveUp()
	if len(ks) == 0 {
		return nil
	}
	deletes := make([]clientv3.Op, len(ks))
	for i, k := range ks {
		deletes[i] = clientv3.OpDelete(k.Name)
	}
	var readBack []clientv3.Op
	if len(ks) > 1 {
		readBack = ks.reads() // which of them are there, if not all
	}
	ctx, cancel := request.Grace(ctx) // a context derived from the hold ends with it, which may be at this moment
	defer cancel()
	answer, doubts, err := ks[0].link().Commit(ctx, link.Transaction{If: ks.Guards(), Then: deletes, Else: readBack, Late: ks.leaveAnswered})
	if request.IsInFlight(err) {
		return err
	}
	ks.leaveAnswered(answer, err)
	if err == nil && !answer.Succeeded && (doubts == 0 || ks.anyThere(answer)) {
		return ErrGone
	}
	return err
}

// leaveAnswered records what has become of the transaction that deletes the keys.
func (ks Keys) leaveAnswered(answer *clientv3.TxnResponse, err error) {
	for _, k := range ks {
		if err != nil || !answer.Succeeded && len(ks) > 1 { // one may be gone, and the others not
			k.discard()
		} else {
			k.forget()
		}
	}
}

// anyThere is about several keys of which not all were there. An earlier attempt, whose answer was lost,
// removed all of them or none.
func (ks Keys) anyThere(answer *clientv3.TxnResponse) bool {
	for i, response := range answer.Responses {
		if kvs := response.GetResponseRange().Kvs; len(kvs) > 0 && kvs[0].CreateRevision == ks[i].Revision {
			return true
		}
	}
	return false
}
