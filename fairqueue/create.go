package fairqueue

import (
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/internal/request"
)

// create commits creation, which creates the keys of all parts, until it is answered. Its
// comparisons must fail if one of the keys is there. If one is, an earlier attempt was applied
// although its answer never came: then answer is nil, and the keys were there at revision seen. If
// none is, or not any more, the error is ErrBusy: a try has other conditions as well. On an error
// nothing is left of the parts, or the session takes care of it.
func create(ctx context.Context, parts []*part, try bool, creation link.Transaction) (answer *clientv3.TxnResponse, seen int64, err error) {
	s := parts[0].session
	creation.Late = func(answer *clientv3.TxnResponse, err error) { createdLate(parts, answer, err) }
	if err := s.Link().Admit(ctx); err != nil {
		forget(parts)
		return nil, 0, err
	}
	chooseEpoch(parts)
	for {
		epoch := parts[0].epoch
		before, checked := epoch.Now(), epoch.Checked()
		readBack := readsOf(parts)
		if checked {
			readBack = append(readBack, epoch.Read())
		}
		creation.Epoch = epoch
		if try { // its comparisons may well fail
			creation.Else = readBack
		}
		answer, doubts, err := s.Link().Commit(ctx, creation)
		if request.IsInFlight(err) { // from now on createdLate takes care of the parts
			return nil, 0, err
		}
		for _, p := range parts {
			p.unanswered += doubts
		}
		noSpace := request.IsAnswer(err, rpctypes.ErrNoSpace) // which may follow a write that has taken effect
		switch {
		case err == nil && answer.Succeeded:
			created(parts, answer)
			return answer, answer.Header.Revision, nil
		case request.IsAnswer(err, rpctypes.ErrPermissionDenied) && checked && epoch.Denies(ctx):
			if parts[0].unanswered == 0 { // or the end of another epoch would not end the doubt
				chooseEpoch(parts)
			}
			continue
		case err != nil && !noSpace:
			forget(parts)
			return nil, 0, err
		}
		refusal := err
		if noSpace || !try { // rare enough for a request of its own
			if answer, err = s.Link().Read(ctx, readBack...); err != nil {
				for _, p := range parts {
					p.unanswered = max(p.unanswered, 1) // or another program's key: unknown
				}
			}
		}
		nothing := err == nil && noneIn(answer.Responses[:len(parts)])
		if noSpace && nothing {
			for _, p := range parts {
				p.unanswered-- // that attempt has been answered
			}
			forget(parts)
			return nil, 0, refusal
		}
		if checked && nothing {
			var moved bool
			if moved, err = epoch.Moved(ctx, before, answer.Responses[len(parts)].GetResponseRange()); moved {
				continue
			}
		}
		if err != nil {
			forget(parts)
			return nil, 0, err
		}
		return nil, answer.Header.Revision, findAgain(parts, answer)
	}
}

// created records the transaction that has created the parts.
func created(parts []*part, answer *clientv3.TxnResponse) {
	for _, p := range parts {
		p.me.revision = answer.Header.Revision
	}
}

// createdLate takes care of parts whose caller has left before etcd answered.
func createdLate(parts []*part, answer *clientv3.TxnResponse, err error) {
	if err == nil && answer.Succeeded {
		created(parts, answer)
		abandon(parts)
		return
	}
	// Keys that were there already are those of an earlier attempt. Only a try reads them, and tells that there are none.
	none := err == nil && len(answer.Responses) > 0 && noneIn(answer.Responses[:len(parts)])
	if err == nil && !none || request.Doubtful(err) {
		for _, p := range parts {
			p.unanswered++
		}
	}
	forget(parts)
}

func noneIn(answers []*etcdserverpb.ResponseOp) bool {
	return !slices.ContainsFunc(answers, func(r *etcdserverpb.ResponseOp) bool { return len(r.GetResponseRange().Kvs) > 0 })
}

// findAgain looks for the keys of an earlier attempt where a later one found some key
// to be there. Unless all are there, it gives up those that are.
func findAgain(parts []*part, answer *clientv3.TxnResponse) error {
	var found, missing int
	var foreign string
	for i, p := range parts {
		own := answer.Responses[i].GetResponseRange().Kvs
		switch {
		case len(own) == 0:
			missing++
		case clientv3.LeaseID(own[0].Lease) != p.session.Lease():
			foreign = p.me.key
		default:
			found++
			p.unanswered = max(p.unanswered-1, 0) // less the one that created it
			p.me.revision = own[0].CreateRevision
		}
	}
	if found == len(parts) {
		return nil
	}
	for i, p := range parts {
		switch {
		case p.me.revision > 0:
			p.abandon()
		case len(answer.Responses[i].GetResponseRange().Kvs) == 0:
			p.forget()
		case p.unanswered > 0:
			p.epoch.Doubt(p.me.key, func() {})
		default:
			// The name stays taken: whatever wrote there may do so again.
		}
	}
	switch {
	case foreign != "":
		return fmt.Errorf("another program's key at %s", foreign)
	case missing == len(parts):
		return ErrBusy
	}
	return ErrGone
}
