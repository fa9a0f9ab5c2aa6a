package link

import (
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// operationLimit is etcd's default, which it counts along each path into nested
	// transactions.
	operationLimit = 128

	// batchLimit leaves as many operations to each transaction as there may be of them.
	batchLimit = operationLimit / 2
)

// batch is several transactions as one.
type batch struct {
	open       []int // how many operations of the whole are those of each; -1 if they are a nested transaction
	conditions []clientv3.Cmp
	operations []clientv3.Op
}

// together nests those that may well fail. The others' operations are done if the conditions of all of
// them hold; otherwise nothing is, of anybody's. For etcd that is about a quarter less work. Of the others there
// are only so many that on the path to each nested transaction there are no more than limit comparisons
// or operations: none if limit is 0.
func together(carry []*pending, limit int) batch {
	b := batch{open: make([]int, len(carry))}
	deepest := 0
	for _, p := range carry {
		deepest = max(deepest, p.depth())
	}
	room := limit - deepest - len(carry)
	var epochs []moment // whose conditions are there
	for i, p := range carry {
		more := len(p.Then) - 1
		conditions := p.conditions()
		if slices.Contains(epochs, p.moment) {
			conditions = p.If
		}
		if (p.Likely || len(conditions) == 0) && more <= room && len(b.conditions)+len(conditions) <= limit-deepest {
			room -= more
			b.open[i] = len(p.Then)
			b.conditions = append(b.conditions, conditions...)
			epochs = append(epochs, p.moment)
			b.operations = append(b.operations, p.Then...)
		} else {
			b.open[i] = -1
			b.operations = append(b.operations, clientv3.OpTxn(p.conditions(), p.Then, p.Else))
		}
	}
	return b
}

// depth is what etcd holds against its limit of operations, at worst.
func (t Transaction) depth() int {
	conditions := len(t.If)
	if t.Epoch != nil {
		conditions++
	}
	return depth(conditions, t.Then, t.Else)
}

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

func (b batch) transaction() Transaction {
	return Transaction{If: b.conditions, Then: b.operations}
}

// answers are what each would have been told on its own.
func (b batch) answers(whole *clientv3.TxnResponse) []*clientv3.TxnResponse {
	answers := make([]*clientv3.TxnResponse, len(b.open))
	rest := whole.Responses
	for i, n := range b.open {
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
