package coalesce

import (
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Transaction is what one caller asks of etcd. It is expected to succeed: if it does not, those that share its request
// are sent again, each alone.
type Transaction struct {
	If         []clientv3.Cmp
	Then, Else []clientv3.Op

	// Epoch, if not nil, returns a further condition for an attempt that begins. Transactions in the same request
	// may have it in common.
	Epoch func() Epoch

	// Late, if not nil, gets the outcome, once, if the caller's context ends while a shared request is in flight. Then
	// the caller's error satisfies [request.IsInFlight], and all earlier attempts have been answered. Late may be
	// called before the caller has its error. It is not called after the end of the session, and must not block.
	Late func(answer *clientv3.TxnResponse, err error)
}

// Epoch is the condition that a key was changed last at a revision. The zero value is no condition.
type Epoch struct {
	Key      string
	Revision int64
}

// conditions of p, that of its epoch included.
func (p *pending) conditions() []clientv3.Cmp {
	if p.epoch.Key == "" {
		return p.If
	}
	return append(slices.Clip(p.If), clientv3.Compare(clientv3.ModRevision(p.epoch.Key), "=", p.epoch.Revision))
}

// classify finds the folder of the key which p creates, if it does, and whether p can share a request: it writes one
// key, has no Else, and is not large.
func (p *pending) classify(limit int) (folder string, shareable bool) {
	writes := 0
	for _, op := range p.Then {
		if op.IsPut() {
			key := string(op.KeyBytes())
			folder = key[:max(strings.LastIndex(key, "/"), 0)] + "/"
		}
		if op.IsPut() || op.IsDelete() {
			writes++
		}
	}
	return folder, writes == 1 && len(p.Else) == 0 && p.operations() <= limit && p.bytes() <= bytesLimit
}

// operations is how many etcd counts, at worst: comparisons or operations, along the path to each nested transaction.
func (p *pending) operations() int { return operations(len(p.conditions()), p.Then) }

func operations(conditions int, then []clientv3.Op) int {
	deepest := 0
	for _, op := range then {
		if op.IsTxn() {
			conditions, then, otherwise := op.Txn()
			deepest = max(deepest, operations(len(conditions), then), operations(0, otherwise))
		}
	}
	return max(conditions, len(then)) + deepest
}

// bytes is about how large the request for p is.
func (p *pending) bytes() (n int) {
	for _, op := range p.Then {
		n += len(op.KeyBytes()) + len(op.RangeBytes()) + len(op.ValueBytes())
	}
	return n
}

// combine makes one request of transactions. Their operations are done if the conditions of all of them hold;
// otherwise nothing is done at all.
func combine(carry []*pending) (conditions []clientv3.Cmp, all []clientv3.Op) {
	var epochs []Epoch // whose conditions are there
	for _, p := range carry {
		if slices.Contains(epochs, p.epoch) {
			conditions = append(conditions, p.If...)
		} else {
			epochs = append(epochs, p.epoch)
			conditions = append(conditions, p.conditions()...)
		}
		all = append(all, p.Then...)
	}
	return conditions, all
}
