package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// short are removals that read something as well, unless all is as it was before: a shortcut.
func short(f *fake, s *session.Session, prefix string, n int) []session.Transaction {
	calm := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision("calm"), "=", f.put("calm", s.Lease()))}
	all := likely(f, s, prefix, n, 1)
	for i := range all {
		all[i].Shortcut = &session.Shortcut{If: append(calm, all[i].If...), Then: all[i].Then[:1]}
	}
	return all
}

// operations counts what a request asks for if its conditions hold.
func operations(r *etcdserverpb.TxnRequest) int { return len(r.Success) - within(r) }

func TestShortcutsAreTakenByWhatGoesOutTogether(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		alone := short(f, s, "alone", 1)[0]
		_, _, err := s.Commit(context.Background(), alone)
		require.NoError(t, err)
		require.Equal(t, 2, operations(f.requests()[0]))

		all := append(short(f, s, "a", 5), likely(f, s, "b", 2, 3)...)
		results, sent := together(t, f, s, all)
		require.Len(t, sent, 1)
		require.Equal(t, 5+2*4, operations(sent[0]))
		for i, r := range results {
			require.True(t, r.answer.Succeeded)
			if i < 5 {
				require.Len(t, r.answer.Responses, 1)
			} else {
				require.Len(t, r.answer.Responses, 4)
			}
			require.EqualValues(t, 1, r.answer.Responses[0].GetResponseDeleteRange().Deleted)
		}
	})
}

func TestAShortcutInVainCostsASecondRequest(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		all := short(f, s, "a", 5)
		f.put("calm", s.Lease()) // not any more
		results, sent := together(t, f, s, all)
		require.Len(t, sent, 2)
		require.Equal(t, 5, within(sent[1]))
		for i, r := range results {
			requireRead(t, r, i, 1)
		}
	})
}

func TestWhoIsInDoubtTakesNoShortcut(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f, session.WithTTL(time.Hour))
		f.set(func(f *fake) { f.txn = unheard })
		wait := busy(f, s)
		results, waitForBoth := commits(context.Background(), s, short(f, s, "a", 2)...)
		time.Sleep(2 * time.Second) // virtual; it has been sent after 100 ms, and will be given up in 1.1 s
		sent := f.requests()
		require.Equal(t, 2, operations(sent[len(sent)-1]), "the shortcut")
		f.set(func(f *fake) { f.txn = late(50 * time.Millisecond) })
		time.Sleep(1080 * time.Millisecond)
		before := len(f.requests()) + session.AloneLimit
		waitForMore := busy(f, s)
		waitForBoth()
		again := f.requests()[before:]
		require.Len(t, again, 1)
		require.Equal(t, 2, within(again[0]), "both together, as they are")
		for _, r := range results {
			require.NoError(t, r.err)
			require.Equal(t, 1, r.doubts)
			require.False(t, r.answer.Succeeded, "it has been done")
		}
		waitForMore()
		wait()
	})
}

// Where shortcuts are in vain few are tried, and many again where they are not any more.
func TestShortcutsAreTriedTheLessTheMoreAreInVain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		second := func(flights int, calm bool) (requests int) {
			for range flights {
				all := short(f, s, "a", 2)
				if !calm {
					f.put("calm", s.Lease())
				}
				_, sent := together(t, f, s, all)
				requests += len(sent) - 1
			}
			return requests
		}
		require.Equal(t, 9, second(300, false), "after 1, 3, 7, 15, 31 and then always 63 without")
		require.Zero(t, second(200, true))
		require.Equal(t, 1, second(1, false), "tried again by now")
		require.Equal(t, 1, second(3, false), "one without, one in vain")
	})
}

// What does not fit among the operations of the whole is a transaction within, and takes no shortcut.
func TestAShortcutIsNotTakenWithin(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		limitOperations(f, 70)
		for range 2 {
			results, sent := together(t, f, s, short(f, s, "a", 64))
			require.Equal(t, 64, within(sent[len(sent)-1]))
			for i, r := range results {
				requireRead(t, r, i, 1)
			}
		}
	})
}
