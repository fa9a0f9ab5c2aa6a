package link_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/coalesce"
	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

// removals are transactions that delete a key each if it is as they know it.
func removals(t *testing.T, f *line, s *session.Session, prefix string, n int) (all []link.Transaction) {
	for i := range n {
		key := fmt.Sprintf("%s%d", prefix, i)
		all = append(all, link.Transaction{
			If:   []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", f.Create(t, key, s.Lease()))},
			Then: []clientv3.Op{clientv3.OpDelete(key)},
		})
	}
	return all
}

// reading are removals that read something as well.
func reading(t *testing.T, f *line, s *session.Session, prefix string, n, reads int) []link.Transaction {
	all := removals(t, f, s, prefix, n)
	for i := range all {
		for r := range reads {
			key := fmt.Sprintf("%s%d read %d", prefix, i, r)
			f.Create(t, key, s.Lease())
			all[i].Then = append(all[i].Then, clientv3.OpGet(key))
		}
	}
	return all
}

// keysOf lists the keys that a request is about.
func keysOf(r *etcdserverpb.TxnRequest) (keys []string) {
	for _, op := range r.Success {
		switch {
		case op.GetRequestTxn() != nil:
			keys = append(keys, keysOf(op.GetRequestTxn())...)
		case op.GetRequestDeleteRange() != nil:
			keys = append(keys, string(op.GetRequestDeleteRange().Key))
		case op.GetRequestPut() != nil:
			keys = append(keys, string(op.GetRequestPut().Key))
		}
	}
	return keys
}

func keysOfAll(all []*etcdserverpb.TxnRequest) (keys [][]string) {
	for _, r := range all {
		keys = append(keys, keysOf(r))
	}
	return keys
}

// committing is a Commit that has been started.
type committing struct {
	answer *clientv3.TxnResponse
	doubts int
	err    error
	took   time.Duration
}

// commits starts a Commit for each of the transactions, one after the other, and returns what
// becomes of them once wait has returned.
func commits(ctx context.Context, s *session.Session, all ...link.Transaction) (results []*committing, wait func()) {
	var working sync.WaitGroup
	for _, t := range all {
		c := &committing{}
		results = append(results, c)
		start := time.Now()
		working.Go(func() {
			c.answer, c.doubts, c.err = s.Link().Commit(ctx, t)
			c.took = time.Since(start)
		})
		synctest.Wait() // the next one comes later
	}
	return results, working.Wait
}

// busy has as many requests in flight as there can be before others wait to share one.
func busy(t *testing.T, f *line, s *session.Session) (wait func()) {
	_, wait = commits(context.Background(), s, removals(t, f, s, "busy", coalesce.AloneLimit)...)
	return wait
}

// together commits all while requests are in flight that take 10 ms, and returns their results and the requests
// that they were sent in.
func together(t *testing.T, f *line, s *session.Session, all ...link.Transaction) ([]*committing, []*etcdserverpb.TxnRequest) {
	return togetherThen(t, f, s, late(10*time.Millisecond), all...)
}

// togetherThen is together, where the fate of the requests that all are sent in is next.
func togetherThen(t *testing.T, f *line, s *session.Session, next fate, all ...link.Transaction) ([]*committing, []*etcdserverpb.TxnRequest) {
	f.Meet(late(10 * time.Millisecond))
	before := len(f.Requests()) + coalesce.AloneLimit
	wait := busy(t, f, s)
	results, waitForAll := commits(context.Background(), s, all...)
	f.Meet(next)
	wait()
	waitForAll()
	return results, f.Requests()[before:]
}

func requireAnswered(t *testing.T, results []*committing, within time.Duration) {
	t.Helper()
	for _, r := range results {
		require.NoError(t, r.err)
		require.Positive(t, r.answer.Header.Revision)
		require.Zero(t, r.doubts)
		require.LessOrEqual(t, r.took, within)
	}
}

func TestTransactionsThatWaitShareARequestAndHaveTheirOwnAnswers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		all := reading(t, f, s, "a", 4, 2)
		for i := range all {
			all[i].Epoch = s.Link().Epoch("e").Condition
		}
		results, sent := together(t, f, s, all...)
		requireAnswered(t, results, 20*time.Millisecond)
		require.Equal(t, [][]string{{"a0", "a1", "a2", "a3"}}, keysOfAll(sent))
		require.Len(t, sent[0].Compare, 4+1, "the epoch is compared once")
		for i, r := range results {
			requireRead(t, r, i, 2)
		}
	})
}

// They would get the same create revision, and be at the same place in line.
func TestTransactionsThatCreateKeysInOneFolderNeverShareARequest(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		var all []link.Transaction
		for _, key := range []string{"x/0", "x/1", "y/2", "x/3", "x/y/4", "5", "6"} {
			all = append(all, creation(s, key))
		}
		all = append(all, removals(t, f, s, "x/a", 2)...)
		results, sent := together(t, f, s, all...)
		requireAnswered(t, results, 20*time.Millisecond)
		require.Equal(t, [][]string{{"x/1"}, {"x/3"}, {"6"}, {"x/a0", "x/a1", "x/0", "y/2", "x/y/4", "5"}}, keysOfAll(sent),
			"the first waits, the others are sent at once; deletions come before what looks at the line")
	})
}

// A transaction about several keys may be as large as a request can be.
func TestTransactionsThatAreLargeOrHaveAnElseAreSentAlone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		all := append(removals(t, f, s, "several", 2), reading(t, f, s, "deep", 1, 64)...)
		all[0].Then = append(all[0].Then, clientv3.OpDelete("another"))
		all[1].Else = []clientv3.Op{clientv3.OpGet("another")}
		big := creation(s, "big")
		big.Then[0] = clientv3.OpPut("big", strings.Repeat("x", 600<<10))
		results, sent := together(t, f, s, append(append(all, big), removals(t, f, s, "a", 2)...)...)
		requireAnswered(t, results, 20*time.Millisecond)
		require.Equal(t, [][]string{{"several0", "another"}, {"several1"}, {"deep0"}, {"big"}, {"a0", "a1"}}, keysOfAll(sent))
	})
}

func TestARequestCarriesAtMost64TransactionsAndHalfAMegabyte(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		results, sent := together(t, f, s, removals(t, f, s, "a", 150)...)
		requireAnswered(t, results, 30*time.Millisecond)
		require.ElementsMatch(t, []int{64, 64, 22}, []int{len(sent[0].Success), len(sent[1].Success), len(sent[2].Success)})

		var large []link.Transaction
		for i := range 3 {
			c := creation(s, fmt.Sprint(i, "/large"))
			c.Then[0] = clientv3.OpPut(fmt.Sprint(i, "/large"), strings.Repeat("x", 200<<10))
			large = append(large, c)
		}
		results, sent = together(t, f, s, large...)
		requireAnswered(t, results, 30*time.Millisecond)
		require.Equal(t, [][]string{{"0/large", "1/large"}, {"2/large"}}, keysOfAll(sent))
	})
}

// Requests take turns that are about equal, rather than one carrying nearly all and the next hardly any.
func TestARequestIsSentWhenAsManyWaitAsAreInFlight(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		var later time.Duration
		f.Meet(func(ctx context.Context, do func() error) error {
			later += 10 * time.Millisecond // one after the other
			return late(30*time.Millisecond+later)(ctx, do)
		})
		n := coalesce.AloneLimit
		wait := busy(t, f, s)
		results, waitForAll := commits(context.Background(), s, removals(t, f, s, "a", n)...)
		require.Len(t, f.Requests(), n, "the first are sent at once, each alone; the others wait")
		time.Sleep(40 * time.Millisecond) // virtual
		synctest.Wait()
		require.Len(t, f.Requests(), n+1)
		require.Len(t, f.Requests()[n].Success, n, "all, though %d are in flight", n-1)
		more, waitForMore := commits(context.Background(), s, removals(t, f, s, "b", n)...)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		require.Len(t, f.Requests(), n+1, "there are %d in flight, in %d requests", n-2+n, n-1)
		wait()
		waitForAll()
		waitForMore()
		require.Len(t, f.Requests(), n+2)
		requireAnswered(t, append(results, more...), time.Second)
	})
}

// Promise 10: a silent endpoint does not keep transactions waiting that have not been sent yet.
func TestNothingWaitsLongForASilentRequest(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		f.Meet(lost)
		wait := busy(t, f, s)
		f.Meet(answered)
		results, waitForAll := commits(context.Background(), s, removals(t, f, s, "a", 192)...)
		waitForAll()
		requireAnswered(t, results, 100*time.Millisecond)
		results, waitForAll = commits(context.Background(), s, removals(t, f, s, "b", 3)...)
		waitForAll()
		requireAnswered(t, results, 0) // there is no second wait
		wait()
	})
}

// Promise 10: an attempt that has more time does not keep others waiting for as long.
func TestARetryAfterAnUnansweredAttemptIsSentAlone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		results, _ := togetherThen(t, f, s, func(ctx context.Context, do func() error) error {
			f.Meet(late(10 * time.Millisecond))
			return unheard(ctx, do)
		}, removals(t, f, s, "a", 3*coalesce.AloneLimit)...)
		for _, r := range results {
			require.NoError(t, r.err)
			require.False(t, r.answer.Succeeded, "the first attempt did it")
			require.Equal(t, 1, r.doubts)
			require.Equal(t, 3*time.Second+20*time.Millisecond, r.took)
		}
		require.Len(t, f.Requests(), coalesce.AloneLimit+1+len(results))
	}, session.WithTTL(time.Hour))
}

func TestARefusalIsOnlyForTheTransactionThatItIsMeantFor(t *testing.T) {
	answers := named(rpctypes.ErrPermissionDenied, rpctypes.ErrTooManyOps)
	inEach(t, answers, func(t *testing.T, f *line, s *session.Session, answer error) {
		f.Refuse(func(r *etcdserverpb.TxnRequest) error {
			if slices.Contains(keysOf(r), "a1") {
				return answer
			}
			return nil
		})
		results, _ := together(t, f, s, removals(t, f, s, "a", 3)...)
		require.ErrorIs(t, results[1].err, answer)
		require.False(t, request.Doubtful(results[1].err))
		requireAnswered(t, []*committing{results[0], results[2]}, 30*time.Millisecond)
	})
}

// It would get 64 requests in place of one.
func TestAnEtcdThatIsBusyIsNotAskedByEachAtOnce(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		results, _ := togetherThen(t, f, s, func(context.Context, func() error) error {
			f.Meet(answered)
			return rpctypes.ErrTooManyRequests
		}, removals(t, f, s, "a", 3)...)
		requireAnswered(t, results, time.Second)
		for _, r := range results {
			require.Greater(t, r.took, 10*time.Millisecond, "without a pause")
		}
	})
}

// Etcd checks its space at the door, and once more when it has applied a transaction. On its own it may be
// accepted, as what only deletes is.
func TestWhatEtcdHadNoSpaceForMayHaveBeenDone(t *testing.T) {
	inEach(t, named(nil, rpctypes.ErrPermissionDenied, rpctypes.ErrNoSpace), func(t *testing.T, f *line, s *session.Session, second error) {
		results, _ := togetherThen(t, f, s, func(_ context.Context, do func() error) error {
			if f.Meet(answered); second != nil {
				f.Meet(refused(second))
			}
			return cmp.Or(do(), rpctypes.ErrNoSpace)
		}, removals(t, f, s, "a", 3)...)
		for _, r := range results {
			require.ErrorIs(t, r.err, second)
			require.Equal(t, 1, r.doubts)
			require.Equal(t, second != nil, request.Doubtful(r.err))
			require.False(t, second == nil && r.answer.Succeeded, "the first attempt did it")
		}
	})
}

// What was not sent leaves no doubt, and what was sent does.
func TestACallerThatGivesUpKnowsWhetherItsTransactionWasSent(t *testing.T) {
	inEach(t, named(false, true), func(t *testing.T, f *line, s *session.Session, sent bool) {
		f.Meet(late(50 * time.Millisecond))
		wait := busy(t, f, s)
		ctx, cancel := context.WithCancel(context.Background())
		all := removals(t, f, s, "a", 2)
		results, waitForIt := commits(ctx, s, all[0])
		others, waitForOther := commits(context.Background(), s, all[1])
		if sent {
			wait()
			synctest.Wait()
		}
		cancel()
		waitForIt()
		require.ErrorIs(t, results[0].err, context.Canceled)
		require.Equal(t, sent, request.Doubtful(results[0].err))
		require.Equal(t, sent, results[0].doubts == 1)
		wait()
		waitForOther()
		requireAnswered(t, others, 100*time.Millisecond)
		require.Equal(t, !sent, f.Exists(t, "a0"))
	})
}

// R2: the lease is gone, which says nothing about what was in flight.
func TestTheLossOfTheSessionLeavesInDoubtWhatWasInFlight(t *testing.T) {
	inEach(t, named(0, coalesce.AloneLimit), func(t *testing.T, f *line, s *session.Session, others int) {
		f.Meet(unheard)
		_, wait := commits(context.Background(), s, removals(t, f, s, "busy", others)...)
		results, waitForAll := commits(context.Background(), s, removals(t, f, s, "a", 2)...)
		time.Sleep(200 * time.Millisecond) // virtual
		f.cluster.Refuse("LeaseKeepAlive", rpctypes.ErrLeaseNotFound)
		require.ErrorIs(t, s.Renew(context.Background()), session.ErrLost)
		waitForAll()
		for _, r := range results {
			require.ErrorIs(t, r.err, session.ErrLost)
			require.Equal(t, 1, r.doubts)
			require.True(t, request.Doubtful(r.err))
		}
		wait()
	})
}

func TestTheEndOfTheSessionEndsTransactionsInFlightAndThoseThatWait(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		f.Meet(lost)
		inFlight, wait := commits(context.Background(), s, removals(t, f, s, "busy", coalesce.AloneLimit)...)
		waiting, waitForAll := commits(context.Background(), s, removals(t, f, s, "a", 3)...)
		require.NoError(t, s.Close(context.Background()))
		waitForAll()
		wait()
		for _, r := range append(inFlight, waiting...) {
			require.ErrorIs(t, r.err, session.ErrClosed)
		}
		for _, r := range waiting {
			require.Zero(t, r.doubts)
			require.False(t, request.Doubtful(r.err))
		}
		require.Len(t, f.Requests(), coalesce.AloneLimit, "the others were never sent")
		_, doubts, err := s.Link().Commit(context.Background(), creation(s, "b"))
		require.ErrorIs(t, err, session.ErrClosed)
		require.Zero(t, doubts)
		require.False(t, request.Doubtful(err), "nothing is sent after the end")
	})
}

func requireRead(t *testing.T, r *committing, i, reads int) {
	t.Helper()
	require.True(t, r.answer.Succeeded)
	require.Len(t, r.answer.Responses, 1+reads)
	require.EqualValues(t, 1, r.answer.Responses[0].GetResponseDeleteRange().Deleted)
	for n, response := range r.answer.Responses[1:] {
		require.Equal(t, fmt.Sprintf("a%d read %d", i, n), string(response.GetResponseRange().Kvs[0].Key))
	}
}

func TestATransactionThatFailsHurtsNoOther(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		all := reading(t, f, s, "a", 5, 1)
		all[2].If[0] = clientv3.Compare(clientv3.CreateRevision("a2"), "=", 0)
		results, sent := together(t, f, s, all...)
		requireAnswered(t, results, 30*time.Millisecond)
		require.Len(t, sent, 1+5, "then each alone")
		for i, r := range results {
			require.Equal(t, i == 2, f.Exists(t, fmt.Sprint("a", i)))
			if i == 2 {
				require.False(t, r.answer.Succeeded)
			} else {
				requireRead(t, r, i, 1)
			}
		}
	})
}

// depth is what etcd compares with its limit: comparisons and operations along the way to each nested transaction.
func depth(r *etcdserverpb.TxnRequest) int {
	deepest := 0
	for _, op := range r.Success {
		if inner := op.GetRequestTxn(); inner != nil {
			deepest = max(deepest, depth(inner))
		}
	}
	return max(len(r.Compare), len(r.Success), len(r.Failure)) + deepest
}

func TestARequestStaysBelowEtcdsLimitOfOperations(t *testing.T) {
	for _, reads := range []int{0, 1, 2, 5} {
		inEach(t, map[string]func(all []link.Transaction){
			"alike": func([]link.Transaction) {},
			"with transactions": func(all []link.Transaction) {
				for i := range all {
					inner := clientv3.OpTxn(all[i].If, all[i].Then, nil)
					all[i].Then = append(all[i].Then, clientv3.OpTxn(nil, []clientv3.Op{inner, inner}, nil))
				}
			},
			"the last is large": func(all []link.Transaction) {
				all[63].Then = append(all[63].Then, slices.Repeat([]clientv3.Op{clientv3.OpGet("a")}, 58)...)
			},
		}, func(t *testing.T, f *line, s *session.Session, change func([]link.Transaction)) {
			all := reading(t, f, s, "a", 64, reads)
			change(all)
			results, sent := together(t, f, s, all...)
			requireAnswered(t, results, 100*time.Millisecond)
			require.Less(t, len(sent), 16)
			for _, r := range sent {
				require.LessOrEqual(t, depth(r), 128)
			}
		})
	}
}

// As with a lower --max-txn-ops.
func TestALowerLimitOfOperationsIsRemembered(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		f.Refuse(func(r *etcdserverpb.TxnRequest) error {
			if depth(r) > 70 {
				return rpctypes.ErrTooManyOps
			}
			return nil
		})
		results, sent := together(t, f, s, reading(t, f, s, "a", 64, 1)...)
		requireAnswered(t, results, 30*time.Millisecond)
		require.Len(t, sent, 1+64, "once refused, then one by one")
		results, sent = together(t, f, s, reading(t, f, s, "b", 64, 1)...)
		requireAnswered(t, results, 30*time.Millisecond)
		require.Len(t, sent, 2)
	})
}

func TestReadsAreAnsweredInOneRequestThatWritesNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		f.Create(t, "a", s.Lease())
		f.Meet(late(10 * time.Millisecond))
		wait := busy(t, f, s)
		for _, reads := range [][]clientv3.Op{{clientv3.OpGet("a")}, {clientv3.OpGet("a"), clientv3.OpGet("b")}} {
			answer, err := s.Link().Read(t.Context(), reads...)
			require.NoError(t, err)
			require.Positive(t, answer.Header.Revision)
			require.Len(t, answer.Responses, len(reads))
			require.Equal(t, "a", string(answer.Responses[0].GetResponseRange().Kvs[0].Key))
			all := f.Requests()
			require.Empty(t, keysOf(all[len(all)-1]))
		}
		wait()
	})
}
