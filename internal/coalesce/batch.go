package coalesce

import (
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Transaction is what one caller asks of etcd. A transaction without Else is expected to succeed. In a shared request
// it costs etcd less if it does. If it does not, all of the request is sent twice.
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
	return append(t.If[:len(t.If):len(t.If)], clientv3.Compare(clientv3.ModRevision(t.Epoch.Key), "=", t.Epoch.Revision))
}

// folder returns that of the key which t creates, if it does, and whether t can share a request: it writes one key,
// is not large and has no more than limit operations.
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
	return folder, writes == 1 && t.depth() <= limit && t.size() <= bytesLimit
}

// depth is what etcd holds against its limit of operations, at worst.
func (t Transaction) depth() int { return depth(len(t.If)+1, t.Then, t.Else) }

func depth(conditions int, then, otherwise []clientv3.Op) int {
	deepest := 0
	for _, operations := range [][]clientv3.Op{then, otherwise} {
		for _, op := range operations {
			if op.IsTxn() {
				conditions, then, otherwise := op.Txn()
				deepest = max(deepest, depth(len(conditions), then, otherwise))
			}
		}
	}
	return max(conditions, len(then), len(otherwise)) + deepest
}

// size is about how many bytes the request for t has.
func (t Transaction) size() (bytes int) {
	for _, op := range t.Then {
		bytes += len(op.KeyBytes()) + len(op.RangeBytes()) + len(op.ValueBytes())
	}
	return bytes
}

// batch is several transactions as one.
type batch struct {
	parts      []int // how many operations of the whole are those of each; -1 if they are a nested transaction
	conditions []clientv3.Cmp
	operations []clientv3.Op
}

// combine nests transactions that have an Else. The others' operations are done if the conditions of all of
// them hold; otherwise nothing is done at all. For etcd that is about a quarter less work. Etcd counts comparisons and
// operations along the path to each nested transaction. Where there would be more than limit, as
// with a limit of 0, the others are nested as well.
func combine(carry []*pending, limit int) batch {
	b := batch{parts: make([]int, len(carry))}
	deepest := 0
	for _, p := range carry {
		deepest = max(deepest, p.depth())
	}
	room := limit - deepest - len(carry)
	var epochs []Epoch // whose conditions are there
	for i, p := range carry {
		more := len(p.Then) - 1
		conditions := p.conditions()
		if slices.Contains(epochs, p.Epoch) {
			conditions = p.If
		}
		if len(p.Else) == 0 && more <= room && len(b.conditions)+len(conditions) <= limit-deepest {
			room -= more
			b.parts[i] = len(p.Then)
			b.conditions = append(b.conditions, conditions...)
			b.operations = append(b.operations, p.Then...)
			epochs = append(epochs, p.Epoch)
		} else {
			b.parts[i] = -1
			b.operations = append(b.operations, clientv3.OpTxn(p.conditions(), p.Then, p.Else))
		}
	}
	return b
}

// answers are those that each would have got alone.
func (b batch) answers(whole *clientv3.TxnResponse) []*clientv3.TxnResponse {
	answers := make([]*clientv3.TxnResponse, len(b.parts))
	rest := whole.Responses
	for i, n := range b.parts {
		own := &clientv3.TxnResponse{Header: whole.Header, Succeeded: true}
		if n >= 0 {
			own.Responses, rest = rest[:n:n], rest[n:]
		} else {
			inner := rest[0].GetResponseTxn()
			own.Succeeded, own.Responses, rest = inner.Succeeded, inner.Responses, rest[1:]
		}
		answers[i] = own
	}
	return answers
}
