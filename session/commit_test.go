package session_test

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

// removal deletes a key if it is the one of that revision, and otherwise reads it.
func removal(key string, revision int64) link.Transaction {
	return link.Transaction{
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", revision)},
		Then: []clientv3.Op{clientv3.OpDelete(key)},
		Else: []clientv3.Op{clientv3.OpGet(key)},
	}
}

// sent lists the keys of each request so far, in order.
func (f *fake) sent() (all [][]string) {
	for _, r := range f.requests() {
		all = append(all, keysOf(r))
	}
	return all
}

func keysOf(r *etcdserverpb.TxnRequest) []string {
	if len(r.Compare) > 0 {
		return []string{string(r.Compare[0].Key)}
	}
	var keys []string
	for _, op := range r.Success {
		keys = append(keys, keysOf(op.GetRequestTxn())...)
	}
	return keys
}

// committing is a Commit under way.
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

func removals(f *fake, s *session.Session, prefix string, n int) (all []link.Transaction) {
	for i := range n {
		key := fmt.Sprintf("%s%d", prefix, i)
		all = append(all, removal(key, f.put(key, s.Lease())))
	}
	return all
}

// busy has as many requests under way as there can be before others collect.
func busy(f *fake, s *session.Session) (wait func()) {
	_, wait = commits(context.Background(), s, removals(f, s, "busy", link.AloneLimit)...)
	return wait
}

func TestALoneTransactionGoesOutAtOnceAndAlone(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) { f.txn = late(time.Second) })
		results, wait := commits(context.Background(), s, removals(f, s, "a", 1)...)
		wait()
		require.NoError(t, results[0].err)
		require.True(t, results[0].answer.Succeeded)
		require.Equal(t, time.Second, results[0].took)
		require.Equal(t, [][]string{{"a0"}}, f.sent())
		require.Len(t, f.requests()[0].Compare, 1)
	})
}

func TestWhatComesWhileRequestsAreUnderWayGoesOutTogether(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) { f.txn = late(50 * time.Millisecond) })
		wait := busy(f, s)
		all := removals(f, s, "a", 3)
		all[1].If[0] = clientv3.Compare(clientv3.CreateRevision("a1"), "=", 0)
		results, waitForAll := commits(context.Background(), s, all...)
		wait()
		waitForAll()
		require.Equal(t, [][]string{{"a0", "a1", "a2"}}, f.sent()[link.AloneLimit:])
		for i, r := range results {
			require.NoError(t, r.err)
			require.Equal(t, 100*time.Millisecond, r.took)
			require.Equal(t, i != 1, r.answer.Succeeded, "each has its own answer")
			require.Positive(t, r.answer.Header.Revision)
		}
		require.Equal(t, "a1", string(results[1].answer.Responses[0].GetResponseRange().Kvs[0].Key))
		require.False(t, f.exists("a0"))
		require.True(t, f.exists("a1"))
		require.False(t, f.exists("a2"))
	})
}

func TestTransactionsThatMustStayApartDo(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) { f.txn = late(10 * time.Millisecond) })
		wait := busy(f, s)
		all := removals(f, s, "a", 6)
		for i, apart := range []string{"x", "x", "y", "", "x", ""} {
			all[i].Apart = apart
		}
		results, waitForAll := commits(context.Background(), s, all...)
		wait()
		waitForAll()
		for _, r := range results {
			require.NoError(t, r.err)
		}
		require.Equal(t, [][]string{{"a0"}, {"a3", "a1", "a2"}, {"a5", "a4"}}, f.sent()[link.AloneLimit:],
			"nobody waits for one to stay apart from; those without such a reason come first, the others in order")
	})
}

// As when very many goroutines of one session join one queue.
func TestThoseWhoStayApartAreLimitedEvenIfEtcdIsSlow(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		var away, most atomic.Int64
		f.set(func(f *fake) {
			f.txn = func(ctx context.Context, do func() error) error {
				most.Store(max(most.Load(), away.Add(1)))
				defer away.Add(-1)
				return late(time.Second)(ctx, do)
			}
		})
		all := removals(f, s, "a", 300)
		for i := range all {
			all[i].Apart = "x"
		}
		results, wait := commits(context.Background(), s, all...)
		wait()
		for _, r := range results {
			require.NoError(t, r.err)
			require.LessOrEqual(t, r.took, 5*time.Second)
		}
		require.GreaterOrEqual(t, most.Load(), int64(128))
		require.LessOrEqual(t, most.Load(), int64(128+5000/100), "one more for each 100 ms without an answer")
	})
}

func TestManyThatMustStayApartDoNotWaitForEachOther(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) { f.txn = late(50 * time.Millisecond) })
		all := removals(f, s, "a", 40)
		for i := range all {
			all[i].Apart = "x"
		}
		results, wait := commits(context.Background(), s, all...)
		wait()
		for _, r := range results {
			require.NoError(t, r.err)
			require.LessOrEqual(t, r.took, 100*time.Millisecond)
		}
		require.Len(t, f.sent(), 40)
	})
}

func TestARequestCarriesAtMost64Transactions(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) { f.txn = late(10 * time.Millisecond) })
		wait := busy(f, s)
		results, waitForAll := commits(context.Background(), s, removals(f, s, "a", 150)...)
		wait()
		waitForAll()
		for _, r := range results {
			require.NoError(t, r.err)
		}
		var sizes []int
		for _, keys := range f.sent()[link.AloneLimit:] {
			sizes = append(sizes, len(keys))
		}
		require.ElementsMatch(t, []int{64, 64, 22}, sizes)
	})
}

// Requests take turns that are about equal, rather than one going out with nearly all and the next with hardly any.
func TestAsManyAsAreUnderWayNeedNotWaitForThem(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		var later time.Duration
		f.set(func(f *fake) {
			f.txn = func(ctx context.Context, do func() error) error {
				later += 10 * time.Millisecond // one after the other
				return late(30*time.Millisecond+later)(ctx, do)
			}
		})
		n := link.AloneLimit
		wait := busy(f, s)
		results, waitForAll := commits(context.Background(), s, removals(f, s, "a", n)...)
		require.Len(t, f.sent(), n, "the first of those under way is the first to end")
		time.Sleep(40 * time.Millisecond) // virtual
		synctest.Wait()
		require.Len(t, f.sent(), n+1)
		require.Len(t, f.sent()[n], n, "all, though %d are under way", n-1)
		more, waitForMore := commits(context.Background(), s, removals(f, s, "b", n)...)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		require.Len(t, f.sent(), n+1, "there are %d under way, in %d requests", n-2+n, n-1)
		wait()
		waitForAll()
		waitForMore()
		require.Len(t, f.sent(), n+2)
		for _, r := range append(results, more...) {
			require.NoError(t, r.err)
		}
	})
}

// Promise 10: when those under way are overdue, there is room for more than one request.
func TestThoseWhoHaveWaitedForASilentRequestLeaveTogether(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) { f.txn = lost })
		wait := busy(f, s)
		f.set(func(f *fake) { f.txn = late(time.Second) })
		results, waitForAll := commits(context.Background(), s, removals(f, s, "a", 192)...)
		waitForAll()
		for _, r := range results {
			require.NoError(t, r.err)
			require.Equal(t, 1100*time.Millisecond, r.took)
		}
		wait()
	})
}

// Promise 10: an attempt that is given more time does not keep others waiting for as long.
func TestAttemptsWithMoreTimeShareNoRequestWithOthers(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f, session.WithTTL(time.Hour))
		f.set(func(f *fake) { f.txn = lost })
		patient, waitForIt := commits(context.Background(), s, removals(f, s, "patient", 1)...)
		time.Sleep(9*time.Second - 50*time.Millisecond) // virtual; its third attempt is about to begin
		wait := busy(f, s)
		time.Sleep(40 * time.Millisecond)
		all, waitForAll := commits(context.Background(), s, removals(f, s, "a", 3)...)
		time.Sleep(time.Second)
		f.set(func(f *fake) { f.txn = nil })
		waitForAll()
		for _, r := range all {
			require.NoError(t, r.err)
			require.Less(t, r.took, 4*time.Second)
			require.Equal(t, 1, r.doubts)
		}
		waitForIt()
		require.NoError(t, patient[0].err)
		require.Equal(t, 3, patient[0].doubts)
		wait()
	})
}

// Promise 10: a silent endpoint must not keep those waiting who have not been sent yet.
func TestNobodyWaitsLongForASilentRequest(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) { f.txn = lost })
		wait := busy(f, s)
		f.set(func(f *fake) { f.txn = nil })
		results, waitForAll := commits(context.Background(), s, removals(f, s, "a", 3)...)
		waitForAll()
		for _, r := range results {
			require.NoError(t, r.err)
			require.Equal(t, 100*time.Millisecond, r.took)
		}
		require.Equal(t, [][]string{{"a0", "a1", "a2"}}, f.sent()[link.AloneLimit:])

		// What has not been answered for long is not going to be in a moment.
		results, waitForAll = commits(context.Background(), s, removals(f, s, "b", 3)...)
		waitForAll()
		for _, r := range results {
			require.NoError(t, r.err)
			require.Zero(t, r.took, "nobody waits for it a second time")
		}
		wait()
	})
}

func TestARefusalIsOnlyForTheOneItIsMeantFor(t *testing.T) {
	for name, answer := range map[string]error{"permission": rpctypes.ErrPermissionDenied, "too many operations": rpctypes.ErrTooManyOps} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				s := open(t, f)
				f.set(func(f *fake) {
					f.txn = late(10 * time.Millisecond)
					f.decide = func(r *etcdserverpb.TxnRequest) error {
						for _, key := range keysOf(r) {
							if key == "a1" {
								return answer
							}
						}
						return nil
					}
				})
				wait := busy(f, s)
				results, waitForAll := commits(context.Background(), s, removals(f, s, "a", 3)...)
				wait()
				waitForAll()
				require.NoError(t, results[0].err)
				require.ErrorIs(t, results[1].err, answer)
				require.False(t, request.Doubtful(results[1].err))
				require.NoError(t, results[2].err)
			})
		})
	}
}

func TestALowerLimitOfOperationsIsLearnt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) {
			f.txn = late(10 * time.Millisecond)
			f.decide = func(r *etcdserverpb.TxnRequest) error {
				if len(r.Success) > 3 {
					return rpctypes.ErrTooManyOps
				}
				return nil
			}
		})
		for _, prefix := range []string{"a", "b"} {
			wait := busy(f, s)
			results, waitForAll := commits(context.Background(), s, removals(f, s, prefix, 6)...)
			wait()
			waitForAll()
			for _, r := range results {
				require.NoError(t, r.err)
			}
		}
		require.ElementsMatch(t, [][]string{{"b0", "b1", "b2"}, {"b3", "b4", "b5"}}, f.sent()[len(f.sent())-2:])
	})
}

func TestOneThatIsTooLargeAloneIsNobodyElsesTrouble(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) {
			f.txn = late(10 * time.Millisecond)
			f.decide = func(r *etcdserverpb.TxnRequest) error {
				if keysOf(r)[0] == "large0" {
					return rpctypes.ErrTooManyOps
				}
				return nil
			}
		})
		wait := busy(f, s)
		results, waitForAll := commits(context.Background(), s, removals(f, s, "large", 1)...)
		waitForAll()
		wait()
		require.ErrorIs(t, results[0].err, rpctypes.ErrTooManyOps)
		wait = busy(f, s)
		results, waitForAll = commits(context.Background(), s, removals(f, s, "a", 3)...)
		waitForAll()
		wait()
		for _, r := range results {
			require.NoError(t, r.err)
		}
		sent := f.sent()
		require.Equal(t, []string{"a0", "a1", "a2"}, sent[len(sent)-1])
	})
}

// R1: what was not sent leaves no doubt.
func TestWhoGivesUpBeforeTheRequestIsSentKnows(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) { f.txn = late(50 * time.Millisecond) })
		wait := busy(f, s)
		ctx, cancel := context.WithCancel(context.Background())
		all := removals(f, s, "a", 2)
		doubts := make(chan bool, 1)
		go func() {
			_, n, err := s.Link().Commit(ctx, all[0])
			doubts <- n > 0 || request.Doubtful(err)
		}()
		synctest.Wait()
		results, waitForAll := commits(context.Background(), s, all[1])
		cancel()
		require.False(t, <-doubts)
		wait()
		waitForAll()
		require.NoError(t, results[0].err)
		require.Equal(t, [][]string{{"a1"}}, f.sent()[link.AloneLimit:])
		require.True(t, f.exists("a0"))
	})
}

func TestWhoGivesUpUnderWayIsInDoubtAndTheOthersAreNotHurt(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) { f.txn = late(50 * time.Millisecond) })
		wait := busy(f, s)
		ctx, cancel := context.WithCancel(context.Background())
		all := removals(f, s, "a", 2)
		doubts := make(chan error, 1)
		go func() {
			_, _, err := s.Link().Commit(ctx, all[0])
			doubts <- err
		}()
		results, waitForAll := commits(context.Background(), s, all[1])
		wait()
		synctest.Wait() // under way
		cancel()
		err := <-doubts
		require.ErrorIs(t, err, context.Canceled)
		require.True(t, request.Doubtful(err))
		waitForAll()
		require.NoError(t, results[0].err)
		require.Equal(t, 100*time.Millisecond, results[0].took)
	})
}

func TestALostAnswerLeavesAllInDoubtAndAllTryAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) { f.txn = late(10 * time.Millisecond) })
		wait := busy(f, s)
		results, waitForAll := commits(context.Background(), s, removals(f, s, "a", 3)...)
		f.set(func(f *fake) { f.txn = unheard })
		wait()
		synctest.Wait()
		f.set(func(f *fake) { f.txn = nil })
		waitForAll()
		for _, r := range results {
			require.NoError(t, r.err)
			require.False(t, r.answer.Succeeded, "the first attempt did it")
			require.Equal(t, 1, r.doubts)
			require.Less(t, r.took, 4*time.Second)
		}
	})
}

// Etcd checks its space at the door, and once more when it has applied a transaction. On its own it may be
// accepted, as what only deletes is.
func TestWhatEtcdHadNoSpaceForMayHaveBeenDone(t *testing.T) {
	for _, next := range []error{nil, rpctypes.ErrPermissionDenied} {
		inVirtualTime(t, func(t *testing.T, f *fake) {
			s := open(t, f)
			f.set(func(f *fake) { f.txn = late(10 * time.Millisecond) })
			wait := busy(f, s)
			results, waitForAll := commits(context.Background(), s, removals(f, s, "a", 3)...)
			f.set(func(f *fake) {
				f.txn = func(_ context.Context, do func() error) error {
					f.set(func(f *fake) {
						if f.txn = nil; next != nil {
							f.txn = refused(next)
						}
					})
					return cmp.Or(do(), rpctypes.ErrNoSpace)
				}
			})
			wait()
			waitForAll()
			for _, r := range results {
				require.ErrorIs(t, r.err, next)
				require.Equal(t, 1, r.doubts)
				if next == nil {
					require.False(t, r.answer.Succeeded, "the first attempt did it")
				} else {
					require.True(t, request.Doubtful(r.err))
				}
			}
		})
	}
}

// R2: the lease is gone, which says nothing about what was under way.
func TestTheLossOfTheSessionLeavesInDoubtWhatWasUnderWay(t *testing.T) {
	for _, others := range []int{0, link.AloneLimit} {
		inVirtualTime(t, func(t *testing.T, f *fake) {
			s := open(t, f)
			f.set(func(f *fake) { f.txn = unheard })
			_, wait := commits(context.Background(), s, removals(f, s, "busy", others)...)
			results, waitForAll := commits(context.Background(), s, removals(f, s, "a", 2)...)
			time.Sleep(200 * time.Millisecond) // virtual
			f.set(func(f *fake) { f.renew = refused(rpctypes.ErrLeaseNotFound) })
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
}

// R2: what waits to be sent once more has been sent before.
func TestAnAttemptThatWasNotSentLeavesTheDoubtOfAnEarlierOne(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) { f.txn = unheard })
		results, waitForAll := commits(context.Background(), s, removals(f, s, "a", 1)...)
		time.Sleep(2950 * time.Millisecond) // virtual
		f.set(func(f *fake) { f.txn = lost })
		wait := busy(f, s)
		time.Sleep(60 * time.Millisecond)
		require.NoError(t, s.Close(context.Background()))
		waitForAll()
		require.ErrorIs(t, results[0].err, session.ErrClosed)
		require.Positive(t, results[0].doubts)
		require.True(t, request.Doubtful(results[0].err))
		_, doubts, err := s.Link().Commit(context.Background(), removals(f, s, "b", 1)[0])
		require.ErrorIs(t, err, session.ErrClosed)
		require.Zero(t, doubts)
		require.False(t, request.Doubtful(err), "nothing is sent after the end")
		wait()
	})
}

func TestTheEndOfTheSessionEndsACommitOnItsOwn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) { f.txn = lost })
		wait := busy(f, s)
		result := make(chan error, 1)
		go func() {
			_, _, err := s.Link().Commit(context.Background(), removals(f, s, "a", 1)[0])
			result <- err
		}()
		synctest.Wait()
		require.NoError(t, s.Close(context.Background()))
		require.ErrorIs(t, <-result, session.ErrClosed)
		wait()
	})
}

func TestTheEndOfTheSessionEndsThoseWhoWait(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) { f.txn = lost })
		wait := busy(f, s)
		results, waitForAll := commits(context.Background(), s, removals(f, s, "a", 3)...)
		require.NoError(t, s.Close(context.Background()))
		waitForAll()
		wait()
		for _, r := range results {
			require.ErrorIs(t, r.err, session.ErrClosed)
		}
		require.Len(t, f.sent(), link.AloneLimit, "the others were never sent")
	})
}
