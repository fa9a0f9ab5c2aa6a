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

func epoch(s *session.Session) *link.Epoch { return s.Link().Epoch(epochKey) }

// creation creates key in the session's epoch.
func creation(s *session.Session, key string) link.Transaction {
	return link.Transaction{
		If:    []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
		Then:  []clientv3.Op{clientv3.OpPut(key, "", clientv3.WithLease(s.Lease()))},
		Epoch: epoch(s).Condition,
	}
}

// requireCreates requires that key is created by a transaction in the session's epoch, or not.
func requireCreates(t *testing.T, s *session.Session, key string, want bool) {
	t.Helper()
	answer, _, err := s.Link().Commit(context.Background(), creation(s, key))
	require.NoError(t, err)
	require.Equal(t, want, answer.Succeeded)
}

// doubt hands keys to Doubt. What has been freed can be received.
func doubt(e *link.Epoch, keys ...string) (freed chan string) {
	freed = make(chan string, len(keys))
	for _, key := range keys {
		e.Doubt(key, func() { freed <- key })
	}
	return freed
}

// numbered returns n keys.
func numbered(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint("key", i))
	}
	return keys
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
	silences := named(0, 10*time.Second, 5*time.Minute, time.Hour)
	inEach(t, silences, func(t *testing.T, f *line, s *session.Session, silent time.Duration) {
		release := make(chan struct{})
		f.Meet(held(release))
		ctx, cancel := context.WithCancel(context.Background())
		_, wait := commits(ctx, s, creation(s, "key"))
		f.Meet(answered)
		cancel()
		wait()
		<-doubt(epoch(s), "key")
		requests := len(f.Requests())
		time.Sleep(silent)
		require.Len(t, f.Requests(), requests, "an ended doubt costs nothing")
		close(release)
		synctest.Wait()
		require.False(t, f.Exists(t, "key"))
		requireCreates(t, s, "key", true) // a later request does
	})
}

func TestADoubtRemovesWhatHasBeenCreated(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		f.Create(t, "key", s.Lease())
		f.Create(t, "theirs", s.Lease()+1)
		freed := doubt(epoch(s), "key", "theirs", "nothing")
		synctest.Wait()
		require.Len(t, freed, 3)
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
	noSpace := refused(rpctypes.ErrNoSpace)
	inEach(t, map[string][]fate{ // of the requests before it
		"of the end":  {answered},
		"of a look":   {noSpace, answered},
		"of the next": {noSpace, answered, answered, answered},
	}, func(t *testing.T, f *line, s *session.Session, fates []fate) {
		f.Create(t, "key", s.Lease())
		release := make(chan struct{})
		fates = append(fates, overtaken(release))
		var requests atomic.Int64
		f.Meet(func(ctx context.Context, do func() error) error {
			if n := requests.Add(1); int(n) <= len(fates) {
				return fates[n-1](ctx, do)
			}
			return do()
		})
		<-doubt(epoch(s), "key")
		require.False(t, f.Exists(t, "key"))
		requireCreates(t, s, "key", true)
		close(release)
		synctest.Wait()
		require.True(t, f.Exists(t, "key"))
	})
}

// What doubts cost does not grow with what was tried, and ends.
func TestManyDoubtsEndInFewRequests(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		f.Meet(late(500 * time.Millisecond))
		freed := doubt(epoch(s), numbered(200)...)
		time.Sleep(time.Minute)
		require.Len(t, freed, 200)
		requireFewRequests(t, f, 2+6)
	})
}

// A user may be allowed to read and write the locks only.
func TestADeniedEpochMakesWayForTheNextKey(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		f.Refuse(func(r *etcdserverpb.TxnRequest) error {
			for _, op := range r.Success {
				if string(op.GetRequestRange().GetKey()) == epochKey || string(op.GetRequestPut().GetKey()) == epochKey {
					return rpctypes.ErrPermissionDenied
				}
			}
			return nil
		})
		first := s.Link().Epoch(epochKey, "second")
		require.True(t, first.Denies(context.Background()))
		second := s.Link().Epoch(epochKey, "second")
		require.NotSame(t, first, second)
		require.True(t, first.Denies(context.Background()), "a call that was refused at the same time makes way as well")
		require.False(t, second.Denies(context.Background()))
		<-doubt(second, "key")
		require.True(t, f.Exists(t, "second"))
	})
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

// R11: with no epoch to be had, the name is observed for as long as the session lasts.
func TestWithoutAnEpochANameIsObserved(t *testing.T) {
	times := named(0, 100*time.Millisecond, 10*time.Second, time.Hour)
	inEach(t, times, func(t *testing.T, f *line, s *session.Session, after time.Duration) {
		f.Refuse(deniedEpoch(rpctypes.ErrPermissionDenied))
		freed := doubt(epoch(s), "key")
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
		require.Empty(t, freed, "confirmed what cannot be known")
	})
}

// What a name costs that is observed does not grow with each.
func TestNamesWithoutAnEpochAreObservedTogether(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		f.Refuse(deniedEpoch(rpctypes.ErrPermissionDenied))
		const names = 1000
		for _, key := range numbered(names) {
			doubt(epoch(s), key)
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
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		f.Refuse(deniedEpoch(rpctypes.ErrPermissionDenied))
		doubts := 0
		for ; s.Link().Admit(context.Background()) == nil; doubts++ {
			doubt(epoch(s), fmt.Sprint("key", doubts))
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
	log := &warnings{}
	inEach(t, named(rpctypes.ErrNoSpace, rpctypes.ErrCorrupt), func(t *testing.T, f *line, s *session.Session, refusal error) {
		f.Meet(lost)
		begun, freed := 0, make(chan struct{}, 4096)
		doubt := func(n int) {
			for range n {
				epoch(s).Doubt(fmt.Sprint("key", begun), func() { freed <- struct{}{} })
				begun++
			}
		}
		doubt(link.AbandonedLimit)
		waited := make(chan error, 1)
		go func() { waited <- s.Link().Admit(context.Background()) }()
		time.Sleep(time.Second)
		require.Empty(t, waited)
		f.Meet(answered)
		f.Refuse(deniedEpoch(refusal))
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
		require.LessOrEqual(t, log.n.Load(), int64(4), "two of each")
		f.Create(t, "key5", s.Lease()) // late
		time.Sleep(20 * time.Second)
		require.False(t, f.Exists(t, "key5"), "it would block others for as long as the refusals last")
		f.Refuse(nil)
		time.Sleep(20 * time.Second)
		require.Len(t, freed, begun)
		require.Zero(t, s.Link().Abandoned())
		require.False(t, s.Link().Spent())
		require.NoError(t, s.Link().Admit(context.Background()))
	}, log.logger())
}

// That somebody deletes the epoch's key must not bring back an earlier epoch.
func TestADeletedEpochIsFollowedByANewOne(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		<-doubt(epoch(s), "key")
		f.Remove(t, epochKey)
		before := epoch(s).Now()
		requireCreates(t, s, "key", false)
		moved, err := epoch(s).Moved(context.Background(), before, &etcdserverpb.RangeResponse{})
		require.NoError(t, err)
		require.True(t, moved)
		requireCreates(t, s, "key", true)
	})
}

// The table must not grow with the number of queues ever used.
func TestEpochsThatAreForgottenAreFoundAgain(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		f.Create(t, "other", s.Lease())
		first := epoch(s)
		<-doubt(first, "key")
		for n := range 10_000 {
			s.Link().Epoch(fmt.Sprint("queue", n, epochKey))
		}
		require.LessOrEqual(t, s.Link().Epochs(), 1024)
		again := epoch(s)
		require.NotSame(t, first, again)
		<-doubt(again, "other")
		require.False(t, f.Exists(t, "other"))
		require.Equal(t, first.Now(), again.Now(), "what the second one has sent belonged to no epoch of the first")
	})
}
