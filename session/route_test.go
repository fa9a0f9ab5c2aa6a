package session_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/session"
)

// reading are n transactions that read so many keys each, which are there.
func reading(f *fake, s *session.Session, prefix string, n, keys int, opts ...clientv3.OpOption) (all []link.Transaction) {
	for i := range n {
		t := link.Transaction{}
		for k := range keys {
			key := fmt.Sprintf("%s%d.%d", prefix, i, k)
			f.put(key, s.Lease())
			t.Then = append(t.Then, clientv3.OpGet(key, opts...))
		}
		all = append(all, t)
	}
	return all
}

// busyReading has as many requests for reads under way as there can be before others collect.
func busyReading(f *fake, s *session.Session, opts ...clientv3.OpOption) (wait func()) {
	_, wait = commits(context.Background(), s, reading(f, s, "busy", link.AloneLimit, 1, opts...)...)
	return wait
}

// keysRead lists what each request read, one that reads from any member with an "any" in front. Whatever
// is not a read fails the test.
func (f *fake) keysRead(t *testing.T) (all [][]string) {
	for _, r := range f.requests() {
		var keys []string
		for _, op := range r.Success {
			read := op.GetRequestRange()
			require.NotNil(t, read, "a transaction within, or a write: a raft entry")
			key := string(read.Key)
			if read.Serializable {
				key = "any " + key
			}
			keys = append(keys, key)
		}
		all = append(all, keys)
	}
	return all
}

func TestReadsThatComeWhileReadsAreUnderWayGoOutTogether(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) { f.txn = late(50 * time.Millisecond) })
		wait := busyReading(f, s)
		all := append(reading(f, s, "a", 2, 2), reading(f, s, "b", 1, 1)...)
		results, waitForAll := commits(context.Background(), s, all...)
		wait()
		waitForAll()
		require.Equal(t, [][]string{{"a0.0", "a0.1", "a1.0", "a1.1", "b0.0"}}, f.keysRead(t)[link.AloneLimit:])
		for i, r := range results {
			require.NoError(t, r.err)
			require.Equal(t, 100*time.Millisecond, r.took)
			require.True(t, r.answer.Succeeded)
			require.Positive(t, r.answer.Header.Revision)
			require.Len(t, r.answer.Responses, len(all[i].Then))
			for k, op := range all[i].Then {
				require.Equal(t, op.KeyBytes(), r.answer.Responses[k].GetResponseRange().Kvs[0].Key)
			}
		}
	})
}

func TestAReadAloneIsAnsweredLikeATransaction(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		results, wait := commits(context.Background(), s, reading(f, s, "a", 1, 1)...)
		wait()
		require.NoError(t, results[0].err)
		require.True(t, results[0].answer.Succeeded)
		require.Positive(t, results[0].answer.Header.Revision)
		require.Equal(t, "a0.0", string(results[0].answer.Responses[0].GetResponseRange().Kvs[0].Key))
	})
}

// A read does not wait for writes, nor for reads of another kind, nor they for it.
func TestWhatIsOfAnotherKindDoesNotWait(t *testing.T) {
	anywhere := clientv3.WithSerializable()
	kinds := map[string]struct {
		busy func(*fake, *session.Session) func()
		one  func(*fake, *session.Session) []link.Transaction
	}{
		"write": {busy, func(f *fake, s *session.Session) []link.Transaction { return removals(f, s, "w", 1) }},
		"read": {
			func(f *fake, s *session.Session) func() { return busyReading(f, s) },
			func(f *fake, s *session.Session) []link.Transaction { return reading(f, s, "r", 1, 2) },
		},
		"read from any member": {
			func(f *fake, s *session.Session) func() { return busyReading(f, s, anywhere) },
			func(f *fake, s *session.Session) []link.Transaction { return reading(f, s, "l", 1, 2, anywhere) },
		},
	}
	for others, first := range kinds {
		for name, second := range kinds {
			t.Run(name+" while busy with "+others, func(t *testing.T) {
				inVirtualTime(t, func(t *testing.T, f *fake) {
					s := open(t, f)
					f.set(func(f *fake) { f.txn = late(10 * time.Millisecond) })
					wait := first.busy(f, s)
					results, waitForIt := commits(context.Background(), s, second.one(f, s)...)
					wait()
					waitForIt()
					require.NoError(t, results[0].err)
					took := 10 * time.Millisecond
					if others == name {
						took *= 2
					}
					require.Equal(t, took, results[0].took)
				})
			})
		}
	}
}

// One read that the quorum has to answer makes the whole request one.
func TestReadsOfBothKindsAreAskedOfTheQuorum(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) { f.txn = late(10 * time.Millisecond) })
		wait := busyReading(f, s)
		both := reading(f, s, "a", 1, 1, clientv3.WithSerializable())
		both[0].Then = append(both[0].Then, reading(f, s, "b", 1, 1)[0].Then...)
		_, waitForIt := commits(context.Background(), s, both...)
		wait()
		waitForIt()
		require.Equal(t, [][]string{{"any a0.0", "b0.0"}}, f.keysRead(t)[link.AloneLimit:])
	})
}

// More would be a transaction within, which is a raft entry.
func TestARequestCarriesAtMost64Reads(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) { f.txn = late(10 * time.Millisecond) })
		wait := busyReading(f, s)
		all := append(reading(f, s, "a", 2, 25), reading(f, s, "b", 1, 15)...)
		all = append(append(all, reading(f, s, "c", 1, 14)...), reading(f, s, "d", 1, 64)...)
		results, waitForAll := commits(context.Background(), s, all...)
		large, waitForLarge := commits(context.Background(), s, reading(f, s, "large", 1, 65)...)
		wait()
		waitForAll()
		waitForLarge()
		var sizes []int
		for _, keys := range f.keysRead(t)[link.AloneLimit:] {
			sizes = append(sizes, len(keys))
		}
		require.ElementsMatch(t, []int{65, 25 + 25 + 14, 15, 64}, sizes)
		for i, r := range append(results, large...) {
			require.NoError(t, r.err, i)
		}
	})
}

func TestARefusedReadIsOnlyForTheOneItIsMeantFor(t *testing.T) {
	for name, refusal := range map[string]error{"permission": rpctypes.ErrPermissionDenied, "too many operations": rpctypes.ErrTooManyOps} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *fake) {
				s := open(t, f)
				f.set(func(f *fake) {
					f.txn = late(10 * time.Millisecond)
					f.decide = func(r *etcdserverpb.TxnRequest) error {
						for _, op := range r.Success {
							if string(op.GetRequestRange().GetKey()) == "a1.0" {
								return refusal
							}
						}
						return nil
					}
				})
				wait := busyReading(f, s)
				results, waitForAll := commits(context.Background(), s, reading(f, s, "a", 3, 2)...)
				wait()
				waitForAll()
				require.NoError(t, results[0].err)
				require.ErrorIs(t, results[1].err, refusal)
				require.NoError(t, results[2].err)
			})
		})
	}
}

// Of a lower limit only that is learnt, not that reads must go alone.
func TestSmallReadsStillGoTogetherAfterALargeOneWasRefused(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		f.set(func(f *fake) {
			f.txn = late(10 * time.Millisecond)
			f.decide = func(r *etcdserverpb.TxnRequest) error {
				if len(r.Success) > 50 {
					return rpctypes.ErrTooManyOps
				}
				return nil
			}
		})
		for range 3 {
			wait := busyReading(f, s)
			all := append(reading(f, s, "large", 1, 60), reading(f, s, "small", 3, 1)...)
			results, waitForAll := commits(context.Background(), s, all...)
			wait()
			waitForAll()
			for i, r := range results {
				require.Equal(t, i == 0, r.err != nil, "etcd refuses the large one alone as well")
			}
		}
		before := len(f.requests()) + link.AloneLimit
		wait := busyReading(f, s)
		_, waitForAll := commits(context.Background(), s, reading(f, s, "a", 50, 1)...)
		wait()
		waitForAll()
		var sizes []int
		for _, keys := range f.keysRead(t)[before:] {
			sizes = append(sizes, len(keys))
		}
		require.ElementsMatch(t, []int{31, 19}, sizes)
	})
}

// Promise 9: those who wait get their answers, however many they are, from an etcd that takes its time. A
// request for many must not end before the patience of those who have asked several times.
func TestManyReadsAreAnsweredByASlowEtcd(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f, session.WithTTL(time.Hour))
		f.set(func(f *fake) { f.txn = late(4 * time.Second) })
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		results, wait := commits(ctx, s, reading(f, s, "a", 108, 2)...)
		wait()
		for _, r := range results {
			require.NoError(t, r.err)
		}
	})
}

func TestReadsTogetherWriteNothing(t *testing.T) {
	c := startEtcd(t)
	client := c.Client(t)
	s := create(t, client, session.WithTTL(time.Hour))
	put(t, client, "there", s.Lease())
	var together atomic.Int64
	c.LoseRequest("Txn", embedtest.When(func(message any) bool {
		together.Store(max(together.Load(), int64(len(message.(*etcdserverpb.TxnRequest).Success))))
		return false // nothing goes wrong
	}))
	entries, ranges := c.AppliedIndex(), c.Calls("Range")
	var working sync.WaitGroup
	read := func(ops ...clientv3.Op) {
		working.Go(func() {
			answer, _, err := s.Link().Commit(t.Context(), link.Transaction{Then: ops})
			if err != nil || len(answer.Responses) != len(ops) || answer.Responses[0].GetResponseRange().Count != 1 {
				t.Errorf("answer %v, error %v", answer, err)
			}
		})
	}
	there := clientv3.OpGet("there")
	held := c.Hold("Range")
	for range link.AloneLimit {
		read(there)
	}
	until(t, func() bool { return c.Calls("Range")-ranges == link.AloneLimit })
	for range 50 {
		read(there, clientv3.OpGet("a", clientv3.WithPrefix(), clientv3.WithLimit(1)))
	}
	until(t, func() bool { return together.Load() > 2 })
	held.Heal()
	working.Wait()
	require.Equal(t, entries, c.AppliedIndex())
}
