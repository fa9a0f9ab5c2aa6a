package keys

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

// Create creates the keys in one transaction, which also does more, until it is answered. If the keys are
// there already, an earlier attempt was applied although its answer never came: then answer is nil, and the keys
// were there at revision seen. If they are not there any more, the error is ErrGone.
func (ks Keys) Create(ctx context.Context, more []clientv3.Op) (answer *clientv3.TxnResponse, seen int64, err error) {
	c, s := ks[0].creation, ks[0].session
	t := link.Transaction{Late: ks.createdLate} // it takes care of the keys, if the error is that of a request in flight
	for _, k := range ks {
		t.If = append(t.If, CreatedAt(k.Name, 0))
		t.Then = append(t.Then, clientv3.OpPut(k.Name, k.Value, clientv3.WithLease(s.Lease())))
	}
	t.Then = append(t.Then, more...)
	if err := s.Link().Admit(ctx); err != nil {
		ks.forget()
		return nil, 0, err
	}
	c.epoch = ks.chooseEpoch()
	for {
		before, checked := c.epoch.Now(), c.epoch.Checked()
		t.Epoch = c.epoch.Condition
		answer, doubts, err := s.Link().Commit(ctx, t)
		if request.IsInFlight(err) {
			return nil, 0, err
		}
		c.unanswered += doubts
		noSpace := request.IsAnswer(err, rpctypes.ErrNoSpace) // which may follow a write that has taken effect
		switch {
		case err == nil && answer.Succeeded:
			ks.created(answer.Header.Revision)
			return answer, answer.Header.Revision, nil
		case request.IsAnswer(err, rpctypes.ErrPermissionDenied) && checked && c.epoch.Denies(ctx):
			if c.unanswered == 0 { // or the end of another epoch would not end the doubt
				c.epoch = ks.chooseEpoch()
			}
			continue
		case err != nil && !noSpace:
			ks.forget()
			return nil, 0, err
		}
		refusal := err
		readBack := ks.reads()
		if checked {
			readBack = append(readBack, c.epoch.Read())
		}
		if answer, err = s.Link().Read(ctx, readBack...); err != nil {
			c.unanswered = max(c.unanswered, 1) // or another program's key: unknown
			ks.forget()
			return nil, 0, err
		}
		nothing, moved := !slices.ContainsFunc(answer.Responses[:len(ks)], holdsKey), false
		switch {
		case noSpace && nothing:
			c.unanswered-- // that attempt has been answered
			err = refusal
		case checked && nothing:
			moved, err = c.epoch.Moved(ctx, before, answer.Responses[len(ks)].GetResponseRange())
		}
		switch {
		case moved:
			continue
		case err != nil:
			ks.forget()
			return nil, 0, err
		}
		return nil, answer.Header.Revision, ks.findAgain(answer)
	}
}

// chooseEpoch returns the epoch of the first key where it is not denied. One is enough: without its condition none of
// the keys is created.
func (ks Keys) chooseEpoch() (epoch *link.Epoch) {
	for _, k := range ks {
		names := make([]string, len(k.folder.Epochs))
		for i, folder := range k.folder.Epochs {
			names[i] = folder + strconv.FormatInt(int64(k.session.Lease()), 16)
		}
		if epoch = k.link().Epoch(names...); epoch.Checked() {
			break
		}
	}
	return epoch
}

func holdsKey(answer *etcdserverpb.ResponseOp) bool { return len(answer.GetResponseRange().Kvs) > 0 }

func (ks Keys) created(revision int64) {
	for _, k := range ks {
		k.Revision, k.written = revision, revision
	}
}

// createdLate takes care of keys whose caller has left before etcd answered.
func (ks Keys) createdLate(answer *clientv3.TxnResponse, err error) {
	if err == nil && answer.Succeeded {
		ks.created(answer.Header.Revision)
		ks.Abandon()
		return
	}
	if err == nil || request.Doubtful(err) { // keys that were there already are those of an earlier attempt
		ks[0].unanswered++
	}
	ks.forget()
}

// findAgain looks for the keys of an earlier attempt where a later one found some key
// to be there. Unless all are there, it gives up those that are.
func (ks Keys) findAgain(answer *clientv3.TxnResponse) error {
	found, foreign := 0, ""
	for i, k := range ks {
		own := answer.Responses[i].GetResponseRange().Kvs
		switch {
		case len(own) == 0:
		case clientv3.LeaseID(own[0].Lease) != k.session.Lease():
			foreign = k.Name
		default:
			found++
			k.Revision, k.written = own[0].CreateRevision, own[0].CreateRevision
		}
	}
	c := ks[0].creation
	if found > 0 {
		c.unanswered = max(c.unanswered-1, 0) // less the one that created them
	}
	if found == len(ks) {
		return nil
	}
	for i, k := range ks {
		switch {
		case k.Revision > 0:
			Keys{k}.Abandon()
		case !holdsKey(answer.Responses[i]):
			k.forget()
		case c.unanswered > 0:
			c.epoch.Doubt(k.Name, k.link().Withhold)
		default:
			k.link().Withhold() // whatever wrote there may do so again
		}
	}
	if foreign != "" {
		return fmt.Errorf("another program's key at %s", foreign)
	}
	return ErrGone
}
