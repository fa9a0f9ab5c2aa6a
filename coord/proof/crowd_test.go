package proof_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

const (
	crowdTTL  = 2 * time.Second
	processes = 5
)

// crowd is some processes that call Once, Latch or Barrier, each over a link of its own. A process that crashes is replaced.
type crowd struct {
	t       *testing.T
	cluster *embedtest.Cluster
	client  *clientv3.Client // without faults
	witness *witness
	random  *rand.Rand
	behave  func(p *caller) // what each process does; it returns when that is done, or the process crashes

	present []*caller
	running sync.WaitGroup
}

// caller is a process of a crowd.
type caller struct {
	ctx      context.Context // ends with a crash
	crash    context.CancelFunc
	client   *clientv3.Client
	link     *embedtest.Link
	sessions *session.Keeper
}

func newCrowd(t *testing.T, seed uint64) *crowd {
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	w := observe(t, client)
	w.upTo(client) // so it watches before anything is compacted
	return &crowd{t: t, cluster: cluster, client: client, witness: w, random: rand.New(rand.NewPCG(seed, 1))}
}

// come adds a process.
func (c *crowd) come() {
	client, link, err := c.cluster.NewLink()
	require.NoError(c.t, err)
	ctx, crash := context.WithCancel(context.Background())
	p := &caller{ctx, crash, client, link, session.Keep(client, session.WithTTL(crowdTTL))}
	c.present = append(c.present, p)
	c.running.Go(func() {
		c.behave(p)
		closing, done := context.WithTimeout(context.Background(), 2*crowdTTL)
		defer done()
		_ = p.sessions.Close(closing)
		_ = p.client.Close()
		p.link.Close()
	})
}

// storm makes trouble for some seconds, and ends with healthy links.
func (c *crowd) storm() {
	troubles := 12
	if *chaos > 0 || *seed > 3 {
		troubles = 60
	}
	for len(c.present) < processes {
		c.come()
	}
	var faults []*embedtest.Fault
	for range troubles {
		time.Sleep(time.Duration(c.random.Int64N(int64(500 * time.Millisecond)))) //nolint:forbidigo // between troubles
		i := c.random.IntN(len(c.present))
		p := c.present[i]
		switch c.random.IntN(10) {
		case 0, 1:
			p.link.Blackhole()
		case 2:
			p.link.Cut()
		case 3:
			p.link.Delay(time.Duration(c.random.Int64N(int64(100 * time.Millisecond))))
		case 4: // from etcd's side it vanishes
			p.link.Blackhole()
			p.crash()
			c.present = slices.Delete(c.present, i, i+1)
			c.come()
		case 5:
			faults = append(faults, c.cluster.LoseReply("Txn", embedtest.Once()))
		case 6:
			_, err := c.client.Compact(c.t.Context(), c.witness.upTo(c.client))
			require.NoError(c.t, err)
		default:
			for _, p := range c.present {
				p.link.Heal()
			}
		}
	}
	for _, p := range c.present {
		p.link.Heal()
	}
	for _, fault := range faults {
		fault.Heal()
	}
}

// finish waits until all processes have returned, and returns the history.
func (c *crowd) finish() []*clientv3.Event {
	c.t.Helper()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		c.running.Wait()
	}()
	select {
	case <-returned:
	case <-time.After(patience):
		require.Fail(c.t, "a call does not return")
	}
	for _, p := range c.present {
		p.crash()
	}
	c.witness.upTo(c.client)
	c.witness.stop()
	c.witness.reading.Wait()
	require.NoError(c.t, c.witness.problem)
	return c.witness.events
}

// revision returns the present revision of etcd, at least that of the last answered write.
func (c *crowd) revision() int64 {
	answer, err := c.client.Get(context.Background(), "revision", clientv3.WithCountOnly())
	if err != nil {
		c.t.Error(err)
		return 0
	}
	return answer.Header.Revision
}

// pause waits for up to d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(rand.N(d)):
	case <-ctx.Done():
	}
}
