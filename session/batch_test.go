package session_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/session"
)

// likely are removals that are expected to succeed, which read something as well.
func likely(f *fake, s *session.Session, prefix string, n, reads int) []link.Transaction {
	all := removals(f, s, prefix, n)
	for i := range all {
		all[i].Else, all[i].Likely = nil, true
		for r := range reads {
			f.put(fmt.Sprintf("%s%d read %d", prefix, i, r), s.Lease())
			all[i].Then = append(all[i].Then, clientv3.OpGet(fmt.Sprintf("%s%d read %d", prefix, i, r)))
		}
	}
	return all
}

// together commits all in one request, or what becomes of it, and returns their results and those
// requests.
func together(t *testing.T, f *fake, s *session.Session, all []link.Transaction) ([]*committing, []*etcdserverpb.TxnRequest) {
	f.set(func(f *fake) { f.txn = late(10 * time.Millisecond) })
	before := len(f.requests()) + link.AloneLimit
	wait := busy(f, s)
	results, waitForAll := commits(context.Background(), s, all...)
	wait()
	waitForAll()
	for _, r := range results {
		require.NoError(t, r.err)
	}
	return results, f.requests()[before:]
}

func within(r *etcdserverpb.TxnRequest) (transactions int) {
	for _, op := range r.Success {
		if op.GetRequestTxn() != nil {
			transactions++
		}
	}
	return transactions
}

func requireRead(t *testing.T, r *committing, i, reads int) {
	t.Helper()
	require.True(t, r.answer.Succeeded)
	require.Positive(t, r.answer.Header.Revision)
	require.Len(t, r.answer.Responses, 1+reads)
	require.EqualValues(t, 1, r.answer.Responses[0].GetResponseDeleteRange().Deleted)
	for n, response := range r.answer.Responses[1:] {
		require.Equal(t, fmt.Sprintf("a%d read %d", i, n), string(response.GetResponseRange().Kvs[0].Key))
	}
}

func TestWhatIsLikelyToSucceedNeedsNoTransactionsWithin(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		results, sent := together(t, f, s, likely(f, s, "a", 5, 2))
		require.Len(t, sent, 1)
		require.Len(t, sent[0].Compare, 5)
		require.Zero(t, within(sent[0]))
		for i, r := range results {
			requireRead(t, r, i, 2)
		}
	})
}

func TestOneThatFailsAgainstExpectationHurtsNobodyElse(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		all := likely(f, s, "a", 5, 1)
		all[2].If[0] = clientv3.Compare(clientv3.CreateRevision("a2"), "=", 0)
		results, sent := together(t, f, s, all)
		require.Len(t, sent, 2)
		require.Equal(t, 5, within(sent[1]))
		for i, r := range results {
			if i == 2 {
				require.False(t, r.answer.Succeeded)
			} else {
				requireRead(t, r, i, 1)
			}
			require.Equal(t, i == 2, f.exists(fmt.Sprintf("a%d", i)))
		}
	})
}

func TestWhatMayFailDoesNotConcernTheOthers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		all := likely(f, s, "a", 4, 1)
		tries := removals(f, s, "b", 2)
		tries[0].If[0] = clientv3.Compare(clientv3.CreateRevision("b0"), "=", 0)
		all = append(all[:1:1], append(tries, all[1:]...)...)
		results, sent := together(t, f, s, all)
		require.Len(t, sent, 1)
		require.Equal(t, 2, within(sent[0]))
		require.False(t, results[1].answer.Succeeded)
		require.Equal(t, "b0", string(results[1].answer.Responses[0].GetResponseRange().Kvs[0].Key))
		require.True(t, results[2].answer.Succeeded)
		for i, r := range append(results[:1:1], results[3:]...) {
			requireRead(t, r, i, 1)
		}
	})
}

// etcd counts comparisons and operations, on the way to each transaction within.
func TestARequestStaysBelowEtcdsLimitOfOperations(t *testing.T) {
	nested := func(all []link.Transaction) {
		for i := range all {
			inner := clientv3.OpTxn(all[i].If, all[i].Then, nil)
			all[i].Then = []clientv3.Op{clientv3.OpTxn(nil, []clientv3.Op{inner, inner}, nil)}
		}
	}
	tests := map[string]func(all []link.Transaction){
		"alike":                   func([]link.Transaction) {},
		"with transactions":       nested,
		"one with, that may fail": func(all []link.Transaction) { nested(all[:1]); all[0].Likely = false },
		"the last is large":       func(all []link.Transaction) { all[63].Then = slices.Repeat(all[63].Then, 60/len(all[63].Then)) },
	}
	for name, change := range tests {
		for _, reads := range []int{0, 1, 2, 5} {
			t.Run(fmt.Sprintf("%s, %d reads", name, reads), func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, f *fake) {
					s := open(t, f)
					all := likely(f, s, "a", 64, reads)
					change(all)
					_, sent := together(t, f, s, all)
					require.Len(t, sent, 1)
					require.LessOrEqual(t, depth(sent[0]), 128)
				})
			})
		}
	}
}

func depth(r *etcdserverpb.TxnRequest) int {
	deepest := 0
	for _, op := range r.Success {
		if inner := op.GetRequestTxn(); inner != nil {
			deepest = max(deepest, depth(inner))
		}
	}
	return max(len(r.Compare), len(r.Success)) + deepest
}

// limitOperations makes f an etcd that was started with another limit.
func limitOperations(f *fake, limit int) {
	f.set(func(f *fake) {
		f.decide = func(r *etcdserverpb.TxnRequest) error {
			if depth(r) > limit {
				return rpctypes.ErrTooManyOps
			}
			return nil
		}
	})
}

// With a lower one, what is likely to succeed needs more room than the others.
func TestALowerLimitIsLearntForWhatIsLikelyToSucceed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		limitOperations(f, 70)
		results, sent := together(t, f, s, likely(f, s, "a", 64, 1))
		require.Len(t, sent, 2, "the first was refused")
		for i, r := range results {
			requireRead(t, r, i, 1)
		}
		_, sent = together(t, f, s, likely(f, s, "b", 64, 1))
		require.Len(t, sent, 1)
	})
}
