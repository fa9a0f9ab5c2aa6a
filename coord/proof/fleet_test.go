package proof_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/coord"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// fleet is the members of one name, and what their works have seen of each other.
type fleet struct {
	*scene
	shards int
	settle time.Duration
	ttl    time.Duration
	stop   time.Duration // how long a work takes to stop, at most

	members []*member // that are to be there at rest
	ended   sync.WaitGroup

	refused atomic.Int64 // how often etcd has refused a Run

	mu     sync.Mutex
	last   map[int]*etcdlock.Hold // of each shard
	works  map[*etcdlock.Hold]bool
	until  map[int]end
	gaps   map[string][]time.Duration // by cause of the end of the work before
	faults []string
}

// end is when a work has returned, and why it had to.
type end struct {
	at  time.Time
	why string
}

type member struct {
	id       string
	weight   int
	client   *clientv3.Client
	link     *embedtest.Link // may be nil
	sessions *session.Keeper
	cancel   context.CancelCauseFunc
	crashed  atomic.Bool
	over     chan struct{}
}

var (
	errLeave = errors.New("leave")
	errCrash = errors.New("crash")
)

func newFleet(t *testing.T, seed uint64, shards int, ttl time.Duration) *fleet {
	f := &fleet{
		scene: newScene(t, seed), shards: shards, settle: 200 * time.Millisecond, ttl: ttl,
		last: map[int]*etcdlock.Hold{}, works: map[*etcdlock.Hold]bool{}, until: map[int]end{}, gaps: map[string][]time.Duration{},
	}
	f.scene.link = func() *embedtest.Link { return pick(f.scene, f.members).link }
	return f
}

// join adds a member.
func (f *fleet) join(id string) *member { return f.joinWith(id, 1) }

// joinWith adds a member of that weight.
func (f *fleet) joinWith(id string, weight int) *member {
	client, link, closeAll := f.connect()
	m := &member{id: id, weight: weight, client: client, link: link, sessions: session.Keep(client, session.WithTTL(f.ttl)), over: make(chan struct{})}
	ctx, cancel := context.WithCancelCause(context.Background())
	m.cancel = cancel
	f.members = append(f.members, m)
	f.ended.Go(func() {
		defer close(m.over)
		f.run(ctx, m)
		closing, done := context.WithTimeout(context.Background(), 2*f.ttl)
		defer done()
		_ = m.sessions.Close(closing)
		closeAll()
	})
	return m
}

// run calls Run until ctx ends, again after etcd has refused something.
func (f *fleet) run(ctx context.Context, m *member) {
	s := coord.NewShards(m.sessions, "x", f.shards, coord.WithSettle(f.settle), coord.WithWeight(m.weight))
	for ctx.Err() == nil {
		err := s.Run(ctx, m.id, f.work)
		switch {
		case m.crashed.Load():
			return
		case ctx.Err() == nil && refused(err):
			f.refused.Add(1)
			pause(ctx, 500*time.Millisecond)
		case ctx.Err() == nil || !errors.Is(err, context.Cause(ctx)):
			f.fault("%s: Run returned %v", m.id, err)
			return
		}
	}
}

// refused reports whether err is an answer of etcd that lasts as long as the trouble. A place that could not be given up
// without a permission takes the id for a while.
func refused(err error) bool {
	return errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrNoSpace) || errors.Is(err, coord.ErrIDTaken)
}

// drop removes a member from those that are to be there.
func (f *fleet) drop(m *member) {
	f.members = slices.DeleteFunc(f.members, func(other *member) bool { return other == m })
}

// leave ends a Run in good order, and waits for that.
func (f *fleet) leave(m *member) {
	f.drop(m)
	m.cancel(errLeave)
	<-m.over
}

// crash lets a member vanish: from etcd's side its process is gone, and its works stop.
func (f *fleet) crash(m *member) {
	f.drop(m)
	m.crashed.Store(true)
	if m.link != nil {
		m.link.Blackhole()
	} else {
		closeClient(m.client)
	}
	m.cancel(errCrash)
}

func (f *fleet) fault(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, fmt.Sprintf(format, args...))
}

// work checks that it is alone, and writes under its guard until it is told to stop.
func (f *fleet) work(ctx context.Context, h *etcdlock.Hold, shard int) error {
	f.begin(h, shard)
	key, value := fmt.Sprintf("work/%d", shard), strconv.FormatInt(int64(h.Token()), 10)
	for ctx.Err() == nil {
		_, _ = h.Txn(ctx).Then(clientv3.OpPut(key, value)).Commit()
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	if f.stop > 0 {
		time.Sleep(rand.N(f.stop)) //nolint:forbidigo // a work takes its time
	}
	// One that is late is refused.
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 100*time.Millisecond)
	defer cancel()
	_, _ = h.Txn(late).Then(clientv3.OpPut(key, value)).Commit()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.works, h)
	f.until[shard] = end{time.Now(), causeOf(ctx)}
	return nil
}

func causeOf(ctx context.Context) string {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, coord.ErrReassigned):
		return "reassigned"
	case errors.Is(cause, errLeave):
		return "left"
	case errors.Is(cause, errCrash):
		return "crashed"
	case errors.Is(cause, etcdlock.ErrLost):
		return "lost"
	}
	return "other"
}

func (f *fleet) begin(h *etcdlock.Hold, shard int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if before := f.last[shard]; before != nil && h.Err() == nil && f.age.steady(f.age.Load()) {
		if before.Err() == nil {
			f.faults = append(f.faults, fmt.Sprintf("shard %d: the works of tokens %d and %d believe to have it", shard, before.Token(), h.Token()))
		}
		if f.works[before] && errors.Is(before.Err(), etcdlock.ErrUnlocked) {
			f.faults = append(f.faults, fmt.Sprintf("shard %d: token %d was given up before its work had returned", shard, before.Token()))
		}
		if before.Token() >= h.Token() {
			f.faults = append(f.faults, fmt.Sprintf("shard %d: token %d after %d", shard, h.Token(), before.Token()))
		}
	}
	f.last[shard], f.works[h] = h, true
	if e, ok := f.until[shard]; ok {
		f.gaps[e.why] = append(f.gaps[e.why], time.Since(e.at))
		delete(f.until, shard)
	}
}

// rest waits until every shard has an owner, nobody waits, and each member has its exact share, rounded down or up.
func (f *fleet) rest() (owners []string) {
	f.t.Helper()
	var last string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		var answer *clientv3.GetResponse
		err := session.Retry(ctx, func(ctx context.Context) (err error) {
			answer, err = f.client.Get(ctx, root, clientv3.WithPrefix())
			return err
		})
		cancel()
		require.NoError(f.t, err)
		state := newState()
		for _, kv := range answer.Kvs {
			state.put(string(kv.Key), kv)
		}
		if owners, last = f.atRest(state); last == "" {
			return owners
		}
		time.Sleep(20 * time.Millisecond) //nolint:forbidigo // polls
	}
	require.Fail(f.t, "the fleet does not come to rest", last)
	return nil
}

func (f *fleet) atRest(s *state) (owners []string, why string) {
	var ids []string
	for _, m := range f.members {
		ids = append(ids, m.id)
	}
	present := s.members()
	slices.Sort(ids)
	if !slices.Equal(ids, present) {
		return nil, fmt.Sprintf("members are %v, not %v", present, ids)
	}
	shares := map[string]int{}
	for shard := range f.shards {
		line := s.lines[strconv.Itoa(shard)]
		if len(line) != 1 || !slices.Contains(ids, line[0].id) {
			return nil, fmt.Sprintf("in line for shard %d are %v", shard, line)
		}
		owners = append(owners, line[0].id)
		shares[line[0].id]++
	}
	total := 0
	for _, m := range f.members {
		total += m.weight
	}
	for _, m := range f.members {
		exact := f.shards * m.weight
		if share := shares[m.id]; share < exact/total || share > (exact+total-1)/total {
			return nil, fmt.Sprintf("shares are %v", shares)
		}
	}
	return owners, ""
}

// end lets all members leave, and checks what they have seen.
func (f *fleet) end() {
	f.t.Helper()
	for _, m := range f.members {
		m.cancel(errLeave)
	}
	f.ended.Wait()
	require.Empty(f.t, strings.Join(f.faults, "\n"))
}

// leaveNothing waits until there is no key any more.
func (f *fleet) leaveNothing() {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		answer, err := f.client.Get(context.Background(), "etcdlock/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		return err == nil && len(answer.Kvs) == 0
	}, patience, 20*time.Millisecond, "keys are left")
}

// finish ends the fleet, and checks what it leaves and what the witness has seen.
func (f *fleet) finish() {
	f.t.Helper()
	f.end()
	f.leaveNothing()
	f.check(0)
	for _, why := range []string{"reassigned", "left", "crashed", "lost"} {
		if gaps := f.gaps[why]; len(gaps) > 0 {
			slices.Sort(gaps)
			f.t.Logf("without a work after one %s: %d times, median %v, at most %v", why, len(gaps),
				gaps[len(gaps)/2].Round(time.Millisecond), gaps[len(gaps)-1].Round(time.Millisecond))
		}
	}
}

func (f *fleet) healLinks() {
	for _, m := range f.members {
		if m.link != nil {
			m.link.Heal()
		}
	}
}
