package k8slock_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	k8slock "github.com/etcdlock/locks/adapters/k8s"
	"github.com/etcdlock/locks/embedtest"
)

var measure = flag.Bool("measure", false, "compare with client-go's LeaseLock; a minute with -parallel 20")

// kubernetes is an API server in memory, with one Lease. Its answers take no time.
type kubernetes struct {
	coordinationv1client.LeaseInterface
	mu       sync.Mutex
	lease    *coordinationv1.Lease
	version  int
	requests atomic.Int64
}

func (k *kubernetes) Leases(string) coordinationv1client.LeaseInterface { return k }

var leases = schema.GroupResource{Resource: "leases"}

func (k *kubernetes) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	k.requests.Add(1)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lease == nil {
		return nil, apierrors.NewNotFound(leases, name)
	}
	return k.lease.DeepCopy(), nil
}

func (k *kubernetes) Create(_ context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return k.write(l)
}

func (k *kubernetes) Update(_ context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return k.write(l)
}

func (k *kubernetes) write(l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	k.requests.Add(1)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lease != nil && l.ResourceVersion != k.lease.ResourceVersion {
		return nil, apierrors.NewConflict(leases, name, nil)
	}
	k.version++
	k.lease = l.DeepCopy()
	k.lease.ResourceVersion = strconv.Itoa(k.version)
	return k.lease.DeepCopy(), nil
}

// candidate is measured.
type candidate struct {
	began   chan time.Time // of its term
	release func()         // ends it in good order
	crash   func()         // ends it for the others
}

type subject struct {
	name     string
	stand    func(t *testing.T) *candidate
	requests func() int64 // so far
}

func ours(t *testing.T) *subject {
	cluster := embedtest.Start(t, embedtest.WithFsync())
	return &subject{
		name: "k8slock",
		stand: func(t *testing.T) *candidate {
			client, link := cluster.Link(t)
			lock := k8slock.New(keep(t, client), name, fmt.Sprint(rand.Int64()))
			c := campaign(t, func(callbacks leaderelection.LeaderCallbacks) leaderelection.LeaderElectionConfig {
				config, err := lock.Config(t.Context(), callbacks)
				require.NoError(t, err)
				return config
			})
			t.Cleanup(func() { finish(lock) })
			c.crash = func() { link.Blackhole() }
			return c
		},
		requests: func() (n int64) {
			for _, method := range []string{"Range", "Txn", "Put", "DeleteRange", "LeaseKeepAlive"} {
				n += cluster.Calls(method)
			}
			return n
		},
	}
}

func theirs(*testing.T) *subject {
	k := &kubernetes{}
	return &subject{
		name: "client-go's LeaseLock",
		stand: func(t *testing.T) *candidate {
			var crashed atomic.Bool
			lock := &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Name: name},
				Client:     k,
				LockConfig: resourcelock.ResourceLockConfig{Identity: fmt.Sprint(rand.Int64())},
			}
			c := campaign(t, func(callbacks leaderelection.LeaderCallbacks) leaderelection.LeaderElectionConfig {
				return leaderelection.LeaderElectionConfig{
					Lock: cutLock{lock, &crashed}, Callbacks: callbacks, ReleaseOnCancel: true,
					LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
				}
			})
			c.crash = func() { crashed.Store(true) }
			return c
		},
		requests: k.requests.Load,
	}
}

// cutLock fails once it is cut.
type cutLock struct {
	resourcelock.Interface
	cut *atomic.Bool
}

func (l cutLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if l.cut.Load() {
		return context.DeadlineExceeded
	}
	return l.Interface.Update(ctx, r)
}

func campaign(t *testing.T, configure func(leaderelection.LeaderCallbacks) leaderelection.LeaderElectionConfig) *candidate {
	c := &candidate{began: make(chan time.Time, 1)}
	elector, err := leaderelection.NewLeaderElector(configure(leaderelection.LeaderCallbacks{
		OnStartedLeading: func(ctx context.Context) {
			select {
			case c.began <- time.Now():
			default:
			}
			<-ctx.Done()
		},
		OnStoppedLeading: func() {},
	}))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		elector.Run(ctx)
	}()
	c.release = cancel
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return c
}

// TestMeasure prints the figures of docs/kubernetes.md.
func TestMeasure(t *testing.T) {
	if !*measure {
		t.Skip("only with -measure")
	}
	const rounds = 10
	var mu sync.Mutex
	figures := map[string][]float64{}
	note := func(what string, s *subject, value float64) {
		mu.Lock()
		defer mu.Unlock()
		what += ", " + s.name
		figures[what] = append(figures[what], value)
	}
	milliseconds := func(from, to time.Time) float64 { return float64(to.Sub(from).Microseconds()) / 1000 }
	t.Run("rounds", func(t *testing.T) {
		for _, make := range []func(*testing.T) *subject{ours, theirs} {
			for range rounds {
				t.Run("", func(t *testing.T) {
					t.Parallel()
					s := make(t)
					start := time.Now()
					first := s.stand(t)
					note("first election, ms", s, milliseconds(start, <-first.began))
					second := s.stand(t)
					time.Sleep(4*time.Second + rand.N(4*time.Second)) // any time, measured in RetryPeriods
					start = time.Now()
					first.release()
					note("hand-over, ms", s, milliseconds(start, <-second.began))
					third := s.stand(t)
					time.Sleep(2 * time.Second)
					before := s.requests()
					time.Sleep(10*time.Second + rand.N(5*time.Second)) // any time, measured in renewals
					note("requests of a leader and a standby in 10 to 15 s", s, float64(s.requests()-before))
					start = time.Now()
					second.crash()
					note("crash, ms", s, milliseconds(start, <-third.began))
				})
			}
		}
	})
	for _, what := range slices.Sorted(maps.Keys(figures)) {
		all := figures[what]
		slices.Sort(all)
		t.Logf("%s: median %.4g, from %.4g to %.4g", what, all[len(all)/2], all[0], all[len(all)-1])
	}
}
