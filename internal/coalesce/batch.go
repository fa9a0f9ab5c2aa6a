package coalesce

import (
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Transaction is what one caller asks of etcd. It is expected to succeed: if it does not, the request that it shares
// is sent twice.
type Transaction struct {
	If         []clientv3.Cmp
	Then, Else []clientv3.Op

	// Epoch is a further condition, which transactions in the same request may have in common.
	Epoch Epoch

	// Late, if not nil, gets the outcome of a request in flight that the caller has given up. It is not called after
	// the end of the session, and must not block.
	Late func(answer *clientv3.TxnResponse, err error)
}

// Epoch is the condition that a key was changed last at a revision. The zero value is no condition.
type Epoch struct {
	Key      string
	Revision int64
}

// conditions of t, that of its epoch included.
func (t Transaction) conditions() []clientv3.Cmp {
	if t.Epoch.Key == "" {
		return t.If
	}
	return append(slices.Clip(t.If), clientv3.Compare(clientv3.ModRevision(t.Epoch.Key), "=", t.Epoch.Revision))
}

// folder returns that of the key which t creates, if it does, and whether t can share a request: it writes one key,
// has no Else, and is not large.
func (t Transaction) folder(limit int) (folder string, shareable bool) {
	writes := 0
	for _, op := range t.Then {
		if op.IsPut() {
			key := string(op.KeyBytes())
			folder = key[:max(strings.LastIndex(key, "/"), 0)] + "/"
		}
		if op.IsPut() || op.IsDelete() {
			writes++
		}
	}
	return folder, writes == 1 && len(t.Else) == 0 && t.operations() <= limit && t.bytes() <= bytesLimit
}

// operations is how many etcd counts, at worst: comparisons or operations, along the path to each nested transaction.
func (t Transaction) operations() int { return operations(len(t.conditions()), t.Then) }

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

// bytes is about how large the request for t is.
func (t Transaction) bytes() (n int) {
	for _, op := range t.Then {
		n += len(op.KeyBytes()) + len(op.RangeBytes()) + len(op.ValueBytes())
	}
	return n
}

// combine makes one request of transactions. Their operations are done if the conditions of all of them hold;
// otherwise nothing is done at all. Nested, each is a transaction of its own, which costs etcd about a third more.
func combine(carry []*pending, nested bool) (conditions []clientv3.Cmp, all []clientv3.Op) {
	var epochs []Epoch // whose conditions are there
	for _, p := range carry {
		switch {
		case nested:
			all = append(all, clientv3.OpTxn(p.conditions(), p.Then, nil))
			continue
		case slices.Contains(epochs, p.Epoch):
			conditions = append(conditions, p.If...)
		default:
			epochs = append(epochs, p.Epoch)
			conditions = append(conditions, p.conditions()...)
		}
		all = append(all, p.Then...)
	}
	return conditions, all
}

// answers are those that each would have got alone.
func answers(carry []*pending, nested bool, whole *clientv3.TxnResponse) (each []*clientv3.TxnResponse) {
	rest := whole.Responses
	for _, p := range carry {
		own := &clientv3.TxnResponse{Header: whole.Header, Succeeded: true}
		if nested {
			inner := rest[0].GetResponseTxn()
			own.Succeeded, own.Responses, rest = inner.Succeeded, inner.Responses, rest[1:]
		} else {
			n := len(p.Then)
			own.Responses, rest = rest[:n:n], rest[n:]
		}
		each = append(each, own)
	}
	return each
}
