package session

import clientv3 "go.etcd.io/etcd/client/v3"

// batch is several transactions as one.
type batch struct {
	open  []int // how many operations of the whole are those of each; -1 if they are a transaction within
	hasty bool  // whether there are shortcuts in it

	conditions []clientv3.Cmp
	operations []clientv3.Op
}

// together makes those that may well fail transactions within the whole. The others' operations
// are done if the conditions of all of them hold; otherwise nothing is, of anybody's. For etcd that is
// about a quarter less work. Of the others there are only so many that on the way to each transaction
// within there are no more than limit comparisons or operations: none if limit is 0. Shortcuts
// are taken among those.
func together(passengers []*passenger, limit int, shortcuts bool) batch {
	b := batch{open: make([]int, len(passengers))}
	within, conditions, operations := 0, 0, 0
	for _, p := range passengers {
		within = max(within, p.depth())
		conditions, operations = conditions+len(p.If), operations+len(p.Then)
	}
	b.conditions = make([]clientv3.Cmp, 0, conditions)
	b.operations = make([]clientv3.Op, 0, operations)
	room := limit - within - len(passengers)
	for i, p := range passengers {
		asked := Shortcut{p.If, p.Then}
		hasty := shortcuts && p.Likely && p.Shortcut != nil
		if hasty {
			asked = *p.Shortcut
		}
		if more := len(asked.Then) - 1; (p.Likely || len(p.If) == 0) && more <= room && len(b.conditions)+len(asked.If) <= limit-within {
			room -= more
			b.open[i] = len(asked.Then)
			b.hasty = b.hasty || hasty
			b.conditions = append(b.conditions, asked.If...)
			b.operations = append(b.operations, asked.Then...)
		} else {
			b.open[i] = -1
			b.operations = append(b.operations, clientv3.OpTxn(p.If, p.Then, p.Else))
		}
	}
	return b
}

// depth is what etcd holds against its limit of operations, at worst.
func (t Transaction) depth() int {
	deepest := depth(t.If, t.Then, t.Else)
	if t.Shortcut != nil {
		deepest = max(deepest, depth(t.Shortcut.If, t.Shortcut.Then, nil))
	}
	return deepest
}

func depth(conditions []clientv3.Cmp, then, otherwise []clientv3.Op) int {
	deepest := 0
	for _, operations := range [][]clientv3.Op{then, otherwise} {
		for _, op := range operations {
			if op.IsTxn() {
				deepest = max(deepest, depth(op.Txn()))
			}
		}
	}
	return max(len(conditions), len(then), len(otherwise)) + deepest
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
