package session

import clientv3 "go.etcd.io/etcd/client/v3"

// batch is several transactions as one.
type batch struct {
	passengers []*passenger
	open       []bool // whose operations are among those of the whole

	conditions []clientv3.Cmp
	operations []clientv3.Op
}

// together makes those that may well fail transactions within the whole. The others' operations
// are done if the conditions of all of them hold; otherwise nothing is, of anybody's. For etcd that is
// about a quarter less work. Of the others there are only so many that on the way to each transaction
// within there are no more than limit comparisons or operations: none if limit is 0.
func together(passengers []*passenger, limit int) batch {
	b := batch{passengers: passengers, open: make([]bool, len(passengers))}
	within, conditions, operations := 0, 0, 0
	for _, p := range passengers {
		within = max(within, depth(p.If, p.Then, p.Else))
		conditions, operations = conditions+len(p.If), operations+len(p.Then)
	}
	b.conditions = make([]clientv3.Cmp, 0, conditions)
	b.operations = make([]clientv3.Op, 0, operations)
	room := limit - within - len(passengers)
	for i, p := range passengers {
		if more := len(p.Then) - 1; (p.Likely || len(p.If) == 0) && more <= room && len(b.conditions)+len(p.If) <= limit-within {
			room -= more
			b.open[i] = true
			b.conditions = append(b.conditions, p.If...)
			b.operations = append(b.operations, p.Then...)
		} else {
			b.operations = append(b.operations, clientv3.OpTxn(p.If, p.Then, p.Else))
		}
	}
	return b
}

// depth is what etcd holds against its limit of operations.
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
	answers := make([]*clientv3.TxnResponse, len(b.passengers))
	rest := whole.Responses
	for i, p := range b.passengers {
		own := &clientv3.TxnResponse{Header: whole.Header, Succeeded: true}
		if b.open[i] {
			n := len(p.Then)
			own.Responses, rest = rest[:n:n], rest[n:]
		} else {
			inner := rest[0].GetResponseTxn()
			own.Succeeded, own.Responses, rest = inner.Succeeded, inner.Responses, rest[1:]
		}
		answers[i] = own
	}
	return answers
}
