package fairqueue

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/internal/request"
)

// leave gives up, in one transaction, those of the parts that have not been given up yet.
func leave(ctx context.Context, parts []*part) error {
	parts = giveUp(parts)
	if len(parts) == 0 {
		return nil
	}
	deletes := make([]clientv3.Op, len(parts))
	for i, p := range parts {
		deletes[i] = clientv3.OpDelete(p.me.key)
	}
	var readBack []clientv3.Op
	if len(parts) > 1 {
		readBack = readsOf(parts) // which of them are there, if not all
	}
	ctx, cancel := request.Grace(ctx) // a context derived from the hold ends with it, which may be at this moment
	defer cancel()
	answer, doubts, err := parts[0].link().Commit(ctx, link.Transaction{
		If: guardsOf(parts), Then: deletes, Else: readBack,
		Late: func(answer *clientv3.TxnResponse, err error) { leaveAnswered(parts, answer, err) },
	})
	if request.IsInFlight(err) {
		return err
	}
	leaveAnswered(parts, answer, err)
	if err == nil && !answer.Succeeded && (doubts == 0 || anyThere(parts, answer)) {
		return ErrGone
	}
	return err
}

// leaveAnswered records what has become of the transaction that deletes parts.
func leaveAnswered(parts []*part, answer *clientv3.TxnResponse, err error) {
	for _, p := range parts {
		if err != nil || !answer.Succeeded && len(parts) > 1 { // one may be gone, and the others not
			p.discard()
		} else {
			p.forget()
		}
	}
}

// anyThere is about several parts of which not all were there. An earlier attempt, whose answer was lost,
// removed all of them or none.
func anyThere(parts []*part, answer *clientv3.TxnResponse) bool {
	for i, l := range listsOf(answer.Responses) {
		if len(l.entries) > 0 && l.entries[0].is(parts[i].me) {
			return true
		}
	}
	return false
}

// giveUp marks parts as given up, and returns those that had not been.
func giveUp(parts []*part) []*part {
	var given []*part
	for _, p := range parts {
		if !p.left.Swap(true) {
			given = append(given, p)
		}
	}
	return given
}
