package fairqueue

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/internal/request"
)

// create creates the keys of all parts in one transaction, which also does more, until it is answered. If the keys are
// there already, an earlier attempt was applied although its answer never came: then answer is nil, and the keys
// were there at revision seen. If they are not there any more, the error is ErrGone. On an error nothing is left of
// the parts, or the session takes care of it.
func create(ctx context.Context, parts []*part, more []clientv3.Op) (answer *clientv3.TxnResponse, seen int64, err error) {
	s := parts[0].session
	creation := link.Transaction{Late: func(answer *clientv3.TxnResponse, err error) { createdLate(parts, answer, err) }}
	for _, p := range parts {
		creation.If = append(creation.If, createdAt(p.me.key, 0))
		creation.Then = append(creation.Then, clientv3.OpPut(p.me.key, p.value, clientv3.WithLease(s.Lease())))
	}
	creation.Then = append(creation.Then, more...)
	if err := s.Link().Admit(ctx); err != nil {
		forget(parts)
		return nil, 0, err
	}
	chooseEpoch(parts)
	for {
		epoch := parts[0].epoch
		before, checked := epoch.Now(), epoch.Checked()
		creation.Epoch = epoch.Condition
		answer, doubts, err := s.Link().Commit(ctx, creation)
		if request.IsInFlight(err) { // from now on createdLate takes care of the parts
			return nil, 0, err
		}
		doubt(parts, doubts)
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
		readBack := readsOf(parts)
		if checked {
			readBack = append(readBack, epoch.Read())
		}
		if answer, err = s.Link().Read(ctx, readBack...); err != nil {
			for _, p := range parts {
				p.unanswered = max(p.unanswered, 1) // or another program's key: unknown
			}
			forget(parts)
			return nil, 0, err
		}
		nothing := !slices.ContainsFunc(answer.Responses[:len(parts)], holdsKey)
		if noSpace && nothing {
			doubt(parts, -1) // that attempt has been answered
			forget(parts)
			return nil, 0, refusal
		}
		if checked && nothing {
			moved, err := epoch.Moved(ctx, before, answer.Responses[len(parts)].GetResponseRange())
			if moved {
				continue
			}
			if err != nil {
				forget(parts)
				return nil, 0, err
			}
		}
		return nil, answer.Header.Revision, findAgain(parts, answer)
	}
}

// doubt adds n to the requests that may yet create the parts.
func doubt(parts []*part, n int) {
	for _, p := range parts {
		p.unanswered += n
	}
}

func holdsKey(answer *etcdserverpb.ResponseOp) bool { return len(answer.GetResponseRange().Kvs) > 0 }

// created records the transaction that has created the parts.
func created(parts []*part, answer *clientv3.TxnResponse) {
	for _, p := range parts {
		p.me.revision, p.written = answer.Header.Revision, answer.Header.Revision
	}
}

// createdLate takes care of parts whose caller has left before etcd answered.
func createdLate(parts []*part, answer *clientv3.TxnResponse, err error) {
	if err == nil && answer.Succeeded {
		created(parts, answer)
		abandon(parts)
		return
	}
	if err == nil || request.Doubtful(err) { // keys that were there already are those of an earlier attempt
		doubt(parts, 1)
	}
	forget(parts)
}

// findAgain looks for the keys of an earlier attempt where a later one found some key
// to be there. Unless all are there, it gives up those that are.
func findAgain(parts []*part, answer *clientv3.TxnResponse) error {
	found, foreign := 0, ""
	for i, p := range parts {
		own := answer.Responses[i].GetResponseRange().Kvs
		switch {
		case len(own) == 0:
		case clientv3.LeaseID(own[0].Lease) != p.session.Lease():
			foreign = p.me.key
		default:
			found++
			p.unanswered = max(p.unanswered-1, 0) // less the one that created it
			p.me.revision, p.written = own[0].CreateRevision, own[0].CreateRevision
		}
	}
	if found == len(parts) {
		return nil
	}
	for i, p := range parts {
		switch {
		case p.me.revision > 0:
			p.abandon()
		case !holdsKey(answer.Responses[i]):
			p.forget()
		case p.unanswered > 0:
			p.epoch.Doubt(p.me.key, func() {})
		default:
			// The name stays taken: whatever wrote there may do so again.
		}
	}
	if foreign != "" {
		return fmt.Errorf("another program's key at %s", foreign)
	}
	return ErrGone
}

// chooseEpoch gives the parts, which one transaction creates, the epoch of the first queue where it
// is not denied. One is enough: without its condition none of them is created.
func chooseEpoch(parts []*part) {
	var epoch *link.Epoch
	for _, p := range parts {
		keys := make([]string, len(p.queue.epochs))
		for i, folder := range p.queue.epochs {
			keys[i] = folder + strconv.FormatInt(int64(p.session.Lease()), 16)
		}
		if epoch = p.link().Epoch(keys...); epoch.Checked() {
			break
		}
	}
	for _, p := range parts {
		p.epoch = epoch
	}
}
