package main

import (
	"context"
	"errors"
	"path"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

// ErrLast is returned to a doctor who must stay, since nobody else is on duty.
var ErrLast = errors.New("the last one on duty has to stay")

// Roster is the list of doctors. Every doctor has a key in etcd, with "on" or "off". At least one has to be
// on duty at any time. This condition is about all keys, and each doctor writes only one of them.
type Roster struct {
	client *clientv3.Client
	prefix string
	lock   etcdlock.Locker
	// consider is what there is to do between the look and the decision, like to ask colleagues.
	consider func(ctx context.Context, onDuty []string) error
}

// LeaveUnguarded is wrong: what it has seen may not be so any more when it writes.
func (r Roster) LeaveUnguarded(ctx context.Context, doctor string) error {
	_, err := r.leave(ctx, doctor, r.client.Txn, false)
	return err
}

// LeaveLocked lets one doctor at a time look and decide. If it fails with ErrLost or ErrOutcomeUnknown,
// call it again: a doctor who has left already may leave again.
func (r Roster) LeaveLocked(ctx context.Context, doctor string) error {
	return etcdlock.Do(ctx, r.lock, func(ctx context.Context, h *etcdlock.Hold) error {
		_, err := r.leave(ctx, doctor, h.Txn, false)
		return err
	})
}

// LeaveCompared needs no lock. All doctors look and consider at the same time. A doctor that another
// has overtaken begins anew.
func (r Roster) LeaveCompared(ctx context.Context, doctor string) error {
	for {
		if left, err := r.leave(ctx, doctor, r.client.Txn, true); left || err != nil {
			return err
		}
	}
}

// leave reports whether the doctor has left. With compare it writes only if the roster has not
// changed since the look; everything that the decision rests on has to be compared, not just what
// is written. That a doctor was added meanwhile does not matter, and one that was removed shows.
func (r Roster) leave(ctx context.Context, doctor string, begin func(context.Context) clientv3.Txn, compare bool) (bool, error) {
	roster, err := r.client.Get(ctx, r.prefix, clientv3.WithPrefix())
	if err != nil {
		return false, err
	}
	var unchanged []clientv3.Cmp
	var onDuty []string
	staying := 0
	for _, kv := range roster.Kvs {
		if compare {
			unchanged = append(unchanged, clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision))
		}
		if name := path.Base(string(kv.Key)); string(kv.Value) == "on" {
			onDuty = append(onDuty, name)
			if name != doctor {
				staying++
			}
		}
	}
	switch {
	case len(onDuty) == staying:
		return true, nil
	case staying == 0:
		return false, ErrLast
	}
	if err := r.consider(ctx, onDuty); err != nil {
		return false, err
	}
	answer, err := begin(ctx).If(unchanged...).Then(r.put(doctor, "off")).Commit()
	if err != nil {
		return false, err
	}
	return answer.Succeeded, nil
}

func (r Roster) put(doctor, duty string) clientv3.Op { return clientv3.OpPut(r.prefix+doctor, duty) }
