package main

import (
	"context"
	"fmt"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// sales are all that there were in one way.
type sales []sale

type sale struct {
	units    int
	revision int64 // of etcd, at which it took effect
}

func audit(ctx context.Context, s stock) (all sales, err error) {
	answer, err := s.client.Get(ctx, s.prefix+"sales/", clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	for _, kv := range answer.Kvs {
		units, err := strconv.Atoi(string(kv.Value))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kv.Key, err)
		}
		all = append(all, sale{units, kv.ModRevision})
	}
	return all, nil
}

func (all sales) units() (total int) {
	for _, s := range all {
		total += s.units
	}
	return total
}

// leftAt is what was left at that revision if no unit was sold twice.
func (all sales) leftAt(revision int64) int {
	left := units
	for _, s := range all {
		if s.revision <= revision {
			left -= s.units
		}
	}
	return left
}

// judge says what is wrong with the outcome; without a lock, if nothing is.
func (all sales) judge(w way, refused []TooFewError) error {
	if !w.locked {
		if all.units() <= units {
			return fmt.Errorf("sold only %d units although nobody took care", all.units())
		}
		return nil
	}
	if all.units() != units {
		return fmt.Errorf("sold %d of %d units", all.units(), units)
	}
	for _, r := range refused {
		if left := all.leftAt(r.Revision); left != r.Left || left >= r.Asked {
			return fmt.Errorf("an order was refused (%w), but there were %d at revision %d", &r, left, r.Revision)
		}
	}
	return nil
}
