package link_test

import (
	"context"
	"fmt"
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

const epochKey = "!/epoch"

// creation creates key in the session's epoch.
func creation(s *session.Session, key string) link.Transaction {
	return link.Transaction{
		If:    []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
		Then:  []clientv3.Op{clientv3.OpPut(key, "", clientv3.WithLease(s.Lease()))},
		Epoch: s.Link().Epoch(epochKey).Condition,
	}
}

// held keeps requests until they are released, also those whose callers have left.
func held(release <-chan struct{}) fate {
	return func(ctx context.Context, do func() error) error {
		done := make(chan error, 1)
		go func() {
			<-release
			done <- do()
		}()
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// R11, promise 8
func TestARequestOfAnEarlierEpochCreatesNothing(t *testing.T) {
	for _, silent := range []time.Duration{0, 10 * time.Second, 5 * time.Minute, time.Hour} {
		t.Run(silent.String(), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *line) {
				s := open(t, f)
				release := make(chan struct{})
				f.Set(func(f *line) { f.OnTxn = held(release) })
				ctx, cancel := context.WithCancel(context.Background())
				_, wait := commits(ctx, s, creation(s, "key"))
				f.Set(func(f *line) { f.OnTxn = nil })
				cancel()
				wait()
				freed := make(chan struct{})
				s.Link().Epoch(epochKey).Doubt("key", func() { close(freed) })
				<-freed
				requests := len(f.Requests())
				time.Sleep(silent)
				require.Len(t, f.Requests(), requests, "an ended doubt costs nothing")
				close(release)
				synctest.Wait()
				require.False(t, f.Exists(t, "key"))

				_, _, err := s.Link().Commit(context.Background(), creation(s, "key"))
				require.NoError(t, err)
				require.True(t, f.Exists(t, "key"), "a later request does")
			})
		})
	}
}

func TestADoubtRemovesWhatHasBeenCreated(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line) {
		s := open(t, f)
		f.Create(t, "key", s.Lease())
		f.Create(t, "theirs", s.Lease()+1)
		var freed atomic.Int64
		for _, key := range []string{"key", "theirs", "nothing"} {
			s.Link().Epoch(epochKey).Doubt(key, func() { freed.Add(1) })
		}
		synctest.Wait()
		require.EqualValues(t, 3, freed.Load())
		require.False(t, f.Exists(t, "key"))
		require.True(t, f.Exists(t, "theirs"))
		require.Zero(t, s.Link().Abandoned())
	})
}

// overtaken keeps a request back until it is released, whatever its client does meanwhile.
func overtaken(release <-chan struct{}) fate {
	return func(ctx context.Context, do func() error) error {
		go func() {
			<-release
			_ = do()
		}()
		<-ctx.Done()
		return ctx.Err()
	}
}

// When a doubt has ended its key may be created anew. What is left of its end must not remove that.
func TestALateRemovalLeavesANewerKeyAlone(t *testing.T) {
	for name, fates := range map[string][]fate{
		"of the end":  {answered, overtaken(nil)},
		"of a look":   {refused(rpctypes.ErrNoSpace), answered, overtaken(nil)},
		"of the next": {refused(rpctypes.ErrNoSpace), answered, answered, answered, overtaken(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *line) {
				s := open(t, f)
				f.Create(t, "key", s.Lease())
				release := make(chan struct{})
				fates[len(fates)-1] = overtaken(release)
				var requests atomic.Int64
				f.Set(func(f *line) {
					f.OnTxn = func(ctx context.Context, do func() error) error {
						if n := requests.Add(1); int(n) <= len(fates) {
							return fates[n-1](ctx, do)
						}
						return do()
					}
				})
				freed := make(chan struct{})
				s.Link().Epoch(epochKey).Doubt("key", func() { close(freed) })
				<-freed
				require.False(t, f.Exists(t, "key"))
				_, _, err := s.Link().Commit(context.Background(), creation(s, "key"))
				require.NoError(t, err)
				require.True(t, f.Exists(t, "key"))
				close(release)
				synctest.Wait()
				require.True(t, f.Exists(t, "key"))
			})
		})
	}
}

// What doubts cost does not grow with what was tried, and ends.
func TestManyDoubtsEndInFewRequests(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line) {
		s := open(t, f)
		f.Set(func(f *line) { f.OnTxn = late(500 * time.Millisecond) })
		var freed atomic.Int64
		for n := range 200 {
			s.Link().Epoch(epochKey).Doubt(fmt.Sprint("key", n), func() { freed.Add(1) })
		}
		time.Sleep(time.Minute)
		require.EqualValues(t, 200, freed.Load())
		require.LessOrEqual(t, len(f.Requests()), 2+6)
		for _, r := range f.Requests() {
			require.LessOrEqual(t, len(r.Success), 64)
		}
	})
}

func TestADoubtLastsUntilItsEndIsConfirmed(t *testing.T) {
	for name, trouble := range map[string]fate{
		"requests vanish":   lost,
		"answers vanish":    unheard,
		"too many requests": refused(rpctypes.ErrTooManyRequests),
		"no leader":         refused(rpctypes.ErrNoLeader),
		"no space":          refused(rpctypes.ErrNoSpace),
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *line) {
				f.OnTxn = trouble
				s := open(t, f)
				f.Create(t, "key", s.Lease())
				var freed atomic.Bool
				s.Link().Epoch(epochKey).Doubt("key", func() { freed.Store(true) })
				time.Sleep(time.Minute)
				require.False(t, freed.Load())
				f.Set(func(f *line) { f.OnTxn = nil })
				time.Sleep(30 * time.Second)
				require.True(t, freed.Load())
				require.False(t, f.Exists(t, "key"))
			})
		})
	}
}

// A user may be allowed to read and write the locks only.
func TestADeniedEpochMakesWayForTheNextKey(t *testing.T) {
	deny := func(r *etcdserverpb.TxnRequest) error {
		for _, op := range r.Success {
			if string(op.GetRequestRange().GetKey()) == epochKey || string(op.GetRequestPut().GetKey()) == epochKey {
				return rpctypes.ErrPermissionDenied
			}
		}
		return nil
	}
	inVirtualTime(t, func(t *testing.T, f *line) {
		f.Decide = deny
		s := open(t, f)
		first := s.Link().Epoch(epochKey, "second")
		require.True(t, first.Denies(context.Background()))
		second := s.Link().Epoch(epochKey, "second")
		require.NotSame(t, first, second)
		require.True(t, first.Denies(context.Background()), "a call that was refused at the same time makes way as well")
		require.False(t, second.Denies(context.Background()))
		freed := make(chan struct{})
		second.Doubt("key", func() { close(freed) })
		<-freed
		require.True(t, f.Exists(t, "second"))
	})
}

// R11: with no epoch to be had, the name is observed for as long as the session lasts.
func TestWithoutAnEpochANameIsObserved(t *testing.T) {
	for _, after := range []time.Duration{0, 100 * time.Millisecond, 10 * time.Second, time.Hour} {
		t.Run(after.String(), func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *line) {
				f.Decide = deniedEpoch(rpctypes.ErrPermissionDenied)
				s := open(t, f)
				s.Link().Epoch(epochKey).Doubt("key", func() { t.Error("confirmed what cannot be known") })
				time.Sleep(after)
				before := len(f.Requests())
				time.Sleep(time.Minute)
				require.LessOrEqual(t, len(f.Requests())-before, 40, "with growing pauses")
				f.Create(t, "key", s.Lease())
				time.Sleep(20 * time.Second)
				require.False(t, f.Exists(t, "key"))
				f.Create(t, "key", s.Lease()+1)
				time.Sleep(time.Minute)
				require.True(t, f.Exists(t, "key"), "somebody else's")
				require.Zero(t, s.Link().Abandoned(), "calls do not wait for what cannot end")
			})
		})
	}
}

// deniedEpoch refuses to write the epoch's key.
func deniedEpoch(err error) func(*etcdserverpb.TxnRequest) error {
	return func(r *etcdserverpb.TxnRequest) error {
		if string(r.Success[0].GetRequestPut().GetKey()) == epochKey {
			return err
		}
		return nil
	}
}

// What a name costs that is observed does not grow with each.
func TestNamesWithoutAnEpochAreObservedTogether(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line) {
		f.Decide = deniedEpoch(rpctypes.ErrPermissionDenied)
		s := open(t, f)
		const names = 1000
		for n := range names {
			s.Link().Epoch(epochKey).Doubt(fmt.Sprint("key", n), func() { t.Error("confirmed what cannot be known") })
			time.Sleep(17 * time.Millisecond)
		}
		time.Sleep(2 * time.Minute)
		before := len(f.Requests())
		const span = 10 * time.Minute
		time.Sleep(span)
		looks := (names + 63) / 64
		require.LessOrEqual(t, len(f.Requests())-before, int(span/(10*time.Second))*looks*5/4)
		f.Create(t, "key7", s.Lease())
		time.Sleep(20 * time.Second)
		require.False(t, f.Exists(t, "key7"))
	})
}

// A session cannot be replaced by itself. It says what to do instead of taking more and more memory.
func TestASessionFullOfDoubtsRefusesCallsAndNamesTheMissingPermission(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line) {
		f.Decide = deniedEpoch(rpctypes.ErrPermissionDenied)
		s := open(t, f)
		doubts := 0
		for ; s.Link().Admit(context.Background()) == nil; doubts++ {
			s.Link().Epoch(epochKey).Doubt(fmt.Sprint("key", doubts), func() { t.Error("confirmed what cannot be known") })
		}
		require.InDelta(t, 2048, doubts, link.AbandonedLimit)
		err := s.Link().Admit(context.Background())
		require.ErrorContains(t, err, `calls were given up`)
		require.ErrorContains(t, err, `must not write keys that begin with "!/"`)
		require.ErrorContains(t, err, "a Keeper replaces such a session")
		require.False(t, request.Doubtful(err))
		require.NoError(t, s.Close(context.Background()))
	})
}

// Etcd may be short of space, or corrupt, for hours. That is the reason that calls get from etcd itself.
func TestARefusedEpochIsTriedAgainSeldomAndDelaysNoCall(t *testing.T) {
	for name, refusal := range map[string]error{"no space": rpctypes.ErrNoSpace, "corrupt": rpctypes.ErrCorrupt} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, f *line) {
				log := &warnings{}
				s := open(t, f, log.logger())
				f.Set(func(f *line) { f.OnTxn = lost })
				var begun, freed atomic.Int64
				doubt := func(n int) {
					for range n {
						s.Link().Epoch(epochKey).Doubt(fmt.Sprint("key", begun.Add(1)), func() { freed.Add(1) })
					}
				}
				doubt(link.AbandonedLimit)
				waited := make(chan error, 1)
				go func() { waited <- s.Link().Admit(context.Background()) }()
				time.Sleep(time.Second)
				require.Empty(t, waited)
				f.Set(func(f *line) { f.OnTxn = nil; f.Decide = deniedEpoch(refusal) })
				require.NoError(t, <-waited, "until etcd refuses")
				time.Sleep(3 * time.Second) // for those that came during the first attempt
				doubt(512 - link.AbandonedLimit - 1)
				require.NoError(t, s.Link().Admit(context.Background()))
				require.False(t, s.Link().Spent())
				doubt(1)
				require.True(t, s.Link().Spent())
				doubt(2048 - 512)
				err := s.Link().Admit(context.Background())
				require.True(t, request.IsAnswer(err, refusal))
				require.False(t, request.Doubtful(err))
				before := len(f.Requests())
				time.Sleep(time.Minute)
				require.LessOrEqual(t, len(f.Requests())-before, 33*60/4, "an epoch and a look at each name, after 1 s, 2 s, ... 8 s")
				require.LessOrEqual(t, int(log.n.Load()), 2)
				f.Create(t, "key5", s.Lease()) // late
				time.Sleep(20 * time.Second)
				require.False(t, f.Exists(t, "key5"), "it would block others for as long as the refusals last")
				f.Set(func(f *line) { f.Decide = nil })
				time.Sleep(20 * time.Second)
				require.Equal(t, begun.Load(), freed.Load())
				require.Zero(t, s.Link().Abandoned())
				require.False(t, s.Link().Spent())
				require.NoError(t, s.Link().Admit(context.Background()))
			})
		})
	}
}

// That somebody deletes the epoch's key must not bring back an earlier epoch.
func TestADeletedEpochIsFollowedByANewOne(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line) {
		s := open(t, f)
		freed := make(chan struct{})
		e := s.Link().Epoch(epochKey)
		e.Doubt("key", func() { close(freed) })
		<-freed
		f.Remove(t, epochKey)
		before := e.Now()
		answer, _, err := s.Link().Commit(context.Background(), creation(s, "key"))
		require.NoError(t, err)
		require.False(t, answer.Succeeded)
		moved, err := e.Moved(context.Background(), before, &etcdserverpb.RangeResponse{})
		require.NoError(t, err)
		require.True(t, moved)
		answer, _, err = s.Link().Commit(context.Background(), creation(s, "key"))
		require.NoError(t, err)
		require.True(t, answer.Succeeded)
	})
}

// The table must not grow with the number of queues ever used.
func TestEpochsThatAreForgottenAreFoundAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line) {
		s := open(t, f)
		f.Create(t, "other", s.Lease())
		freed := make(chan struct{})
		first := s.Link().Epoch(epochKey)
		first.Doubt("key", func() { close(freed) })
		<-freed
		for n := range 10_000 {
			s.Link().Epoch(fmt.Sprint("queue", n, epochKey))
		}
		require.LessOrEqual(t, s.Link().Epochs(), 1024)
		again := s.Link().Epoch(epochKey)
		require.NotSame(t, first, again)
		freed = make(chan struct{})
		again.Doubt("other", func() { close(freed) })
		<-freed
		require.False(t, f.Exists(t, "other"))
		require.Equal(t, first.Now(), again.Now(), "what the second one has sent belonged to no epoch of the first")
	})
}
