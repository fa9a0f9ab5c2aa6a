package k8slock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	k8slock "github.com/etcdlock/locks/adapters/k8s"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // client-go reports what the tests look at
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// name of the election in all tests.
const name = "controller"

func keep(t *testing.T, client *clientv3.Client, opts ...session.Option) *session.Keeper {
	k := session.Keep(client, opts...)
	t.Cleanup(func() { _ = k.Close(context.Background()) })
	return k
}

// newLock returns a Lock of its own client and session.
func newLock(t *testing.T, cluster *embedtest.Cluster, identity string, opts ...etcdlock.Option) *k8slock.Lock {
	l := k8slock.New(keep(t, cluster.Client(t)), name, identity, opts...)
	t.Cleanup(func() { finish(l) })
	return l
}

// finish closes a Lock as client-go would have left it.
func finish(l *k8slock.Lock) {
	l.RecordEvent("stopped leading")
	_ = l.Close(context.Background())
}

// record is what client-go updates with.
func record(identity string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: identity, LeaseDurationSeconds: 15}
}

// lead takes the term as client-go does.
func lead(t *testing.T, l *k8slock.Lock) {
	t.Helper()
	r, _, err := l.Get(t.Context())
	require.NoError(t, err)
	require.Empty(t, r.HolderIdentity)
	require.NoError(t, l.Update(t.Context(), record(l.Identity())))
	l.RecordEvent("became leader")
}

// answer is that of a Get in the background.
type answer struct {
	holder string
	err    error
}

func get(ctx context.Context, l *k8slock.Lock) <-chan answer {
	answers := make(chan answer, 1)
	go func() {
		r, _, err := l.Get(ctx)
		if r == nil {
			r = &resourcelock.LeaderElectionRecord{}
		}
		answers <- answer{r.HolderIdentity, err}
	}()
	return answers
}

// inLine waits until n candidates wait for the leader to end.
func inLine(t *testing.T, client *clientv3.Client, n int) {
	t.Helper()
	election := etcdlock.NewElection(session.Keep(client), name) // without a session
	require.Eventually(t, func() bool {
		waiting, err := election.Candidates(t.Context())
		return err == nil && len(waiting) == n
	}, time.Minute, time.Millisecond)
}

// term is the time during which client-go had a replica lead.
type term struct {
	identity    string
	from, until time.Time // the latter is zero while it leads
}

// history of all replicas of a test.
type history struct {
	mu      sync.Mutex
	terms   []term
	changed chan struct{}
}

func newHistory() *history { return &history{changed: make(chan struct{})} }

// lead is for OnStartedLeading: work that obeys its context at once.
func (h *history) lead(identity string) func(context.Context) {
	return func(ctx context.Context) {
		i := h.begin(identity)
		<-ctx.Done()
		h.end(i)
	}
}

func (h *history) begin(identity string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.terms = append(h.terms, term{identity: identity, from: time.Now()})
	h.wake()
	return len(h.terms) - 1
}

func (h *history) end(i int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.terms[i].until = time.Now()
	h.wake()
}

func (h *history) wake() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// await waits until the terms are as wanted, and returns them.
func (h *history) await(t *testing.T, wanted func([]term) bool) []term {
	t.Helper()
	for limit := time.After(time.Minute); ; {
		h.mu.Lock()
		terms, changed := slices.Clone(h.terms), h.changed
		h.mu.Unlock()
		if wanted(terms) {
			return terms
		}
		select {
		case <-changed:
		case <-limit:
			require.FailNow(t, "not as wanted", "%v", terms)
		}
	}
}

// leader waits until there is one leader in a term after the first n, and no other.
func (h *history) leader(t *testing.T, n int) term {
	t.Helper()
	terms := h.await(t, func(terms []term) bool {
		leading := 0
		for _, term := range terms {
			if term.until.IsZero() {
				leading++
			}
		}
		return len(terms) > n && leading == 1 && terms[len(terms)-1].until.IsZero()
	})
	return terms[len(terms)-1]
}

func (h *history) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.terms)
}

// ended returns when a term has ended.
func (h *history) ended(i int) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.terms[i].until
}

// overlap returns how long two have led at most. All terms but the last are over.
func (h *history) overlap() (most time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := 1; i < len(h.terms); i++ {
		for _, before := range h.terms[:i] {
			if !before.until.IsZero() {
				most = max(most, before.until.Sub(h.terms[i].from))
			}
		}
	}
	return most
}

// replica is a process that is a candidate by client-go, and comes back when it has led.
type replica struct {
	identity string
	lock     *k8slock.Lock
	link     *embedtest.Link
	stop     func() // waits
}

// configure makes the configuration of a replica's LeaderElector.
type configure func(ctx context.Context, l *k8slock.Lock, c leaderelection.LeaderCallbacks) (leaderelection.LeaderElectionConfig, error)

// asConfigured is Config, without the contexts of Wrap: what client-go itself believes counts.
func asConfigured(ctx context.Context, l *k8slock.Lock, c leaderelection.LeaderCallbacks) (leaderelection.LeaderElectionConfig, error) {
	config, err := l.Config(ctx, c)
	config.Callbacks = c
	return config, err
}

func start(t *testing.T, cluster *embedtest.Cluster, identity string, h *history, configure configure, opts ...session.Option) *replica {
	client, link := cluster.Link(t)
	r := &replica{identity: identity, lock: k8slock.New(keep(t, client, opts...), name, identity), link: link}
	ctx, cancel := context.WithCancel(t.Context())
	config, err := configure(ctx, r.lock, leaderelection.LeaderCallbacks{OnStartedLeading: h.lead(identity), OnStoppedLeading: func() {}})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			elector, err := leaderelection.NewLeaderElector(config)
			if err != nil {
				panic(err)
			}
			elector.Run(ctx)
		}
	}()
	r.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		_ = r.lock.Close(context.Background())
	})
	t.Cleanup(r.stop)
	return r
}

func startAll(t *testing.T, cluster *embedtest.Cluster, n int, h *history, configure configure, opts ...session.Option) map[string]*replica {
	all := map[string]*replica{}
	for i := range n {
		identity := fmt.Sprint("replica-", i)
		all[identity] = start(t, cluster, identity, h, configure, opts...)
	}
	return all
}
