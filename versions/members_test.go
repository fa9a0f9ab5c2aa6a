package versions

import (
	"context"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// member stands in a queue once.
type member struct {
	acquire func(context.Context) (key string, err error) // returns when it owns
	release func(context.Context) error
	kill    func() // nil if it is not a process of its own
}

// kind is a way to stand in a queue at a raw prefix.
type kind struct {
	name string
	open func(t *testing.T, e *etcd, prefix string) member
}

// ours are this library's, theirs are what comes with etcd, and commands are etcdctl's.
var (
	ours = []kind{
		ourKind("Mutex", func(ctx context.Context, s *session.Session, prefix string) (*etcdlock.Hold, error) {
			return etcdlock.NewMutex(s, prefix, etcdlock.AtPrefix()).Lock(ctx)
		}),
		ourKind("RWMutex", func(ctx context.Context, s *session.Session, prefix string) (*etcdlock.Hold, error) {
			return etcdlock.NewRWMutex(s, prefix, etcdlock.AtPrefix()).Lock(ctx)
		}),
		ourKind("Election", func(ctx context.Context, s *session.Session, prefix string) (*etcdlock.Hold, error) {
			term, err := etcdlock.NewElection(s, prefix, etcdlock.AtPrefix()).Campaign(ctx, "ours")
			if err != nil {
				return nil, err
			}
			return term.Hold, nil
		}),
		processKind("Mutex of another process", func(e *etcd, prefix string) *exec.Cmd { return e.child(prefix, longTTL) }),
	}
	theirs = []kind{
		{"concurrency.Mutex", openMutex},
		{"concurrency.Election", openElection},
		{"lock service", openLockService},
		{"election service", openElectionService},
	}
	commands = []kind{
		processKind("etcdctl lock", func(e *etcd, prefix string) *exec.Cmd { return e.ctl("lock", ttlFlag(longTTL), prefix) }),
		processKind("etcdctl elect", func(e *etcd, prefix string) *exec.Cmd { return e.ctl("elect", prefix, "etcdctl") }),
	}
)

func ourKind(name string, take func(context.Context, *session.Session, string) (*etcdlock.Hold, error)) kind {
	return kind{name, func(t *testing.T, e *etcd, prefix string) member {
		s := newSession(t, e)
		var held *etcdlock.Hold
		return member{
			acquire: func(ctx context.Context) (string, error) {
				h, err := take(ctx, s, prefix)
				if err != nil {
					return "", err
				}
				held = h
				return h.Key(), nil
			},
			release: func(ctx context.Context) error { return held.Unlock(ctx) },
		}
	}}
}

func processKind(name string, command func(e *etcd, prefix string) *exec.Cmd) kind {
	return kind{name, func(t *testing.T, e *etcd, prefix string) member {
		started := make(chan *holder, 1) // each user takes it out and puts it back
		with := func(use func(*holder)) {
			h := <-started
			started <- h
			use(h)
		}
		return member{
			acquire: func(ctx context.Context) (string, error) {
				h, err := startHolder(t, command(e, prefix))
				if err != nil {
					return "", err
				}
				started <- h
				return h.holds(ctx)
			},
			release: func(context.Context) (err error) {
				with(func(h *holder) { err = h.interrupt() })
				return err
			},
			kill: func() { with((*holder).kill) },
		}
	}}
}

// ctl is etcdctl with arguments.
func (e *etcd) ctl(args ...string) *exec.Cmd {
	cmd := exec.Command(e.etcdctl, append([]string{"--endpoints=" + e.endpoint}, args...)...)
	cmd.Env = environment()
	return cmd
}

func ttlFlag(ttl time.Duration) string { return "--ttl=" + strconv.Itoa(int(ttl/time.Second)) }

func theirSession(t *testing.T, e *etcd) *concurrency.Session {
	t.Helper()
	s, err := concurrency.NewSession(e.client(t), concurrency.WithTTL(int(longTTL/time.Second)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() }) // its lease may be gone
	return s
}

func openMutex(t *testing.T, e *etcd, prefix string) member {
	m := concurrency.NewMutex(theirSession(t, e), prefix)
	return member{
		acquire: func(ctx context.Context) (string, error) { err := m.Lock(ctx); return m.Key(), err },
		release: m.Unlock,
	}
}

func openElection(t *testing.T, e *etcd, prefix string) member {
	election := concurrency.NewElection(theirSession(t, e), prefix)
	return member{
		acquire: func(ctx context.Context) (string, error) {
			err := election.Campaign(ctx, "theirs")
			return election.Key(), err
		},
		release: election.Resign,
	}
}

// grant returns a lease for what the server does on behalf of a client.
func grant(t *testing.T, c *clientv3.Client) int64 {
	t.Helper()
	lease, err := c.Grant(within(t), int64(longTTL/time.Second))
	require.NoError(t, err)
	return int64(lease.ID)
}

func openLockService(t *testing.T, e *etcd, prefix string) member {
	c := e.client(t)
	service, lease := v3lockpb.NewLockClient(c.ActiveConnection()), grant(t, c)
	var key []byte
	return member{
		acquire: func(ctx context.Context) (string, error) {
			answer, err := service.Lock(ctx, &v3lockpb.LockRequest{Name: []byte(prefix), Lease: lease})
			key = answer.GetKey()
			return string(key), err
		},
		release: func(ctx context.Context) error {
			_, err := service.Unlock(ctx, &v3lockpb.UnlockRequest{Key: key})
			return err
		},
	}
}

func openElectionService(t *testing.T, e *etcd, prefix string) member {
	c := e.client(t)
	service, lease := v3electionpb.NewElectionClient(c.ActiveConnection()), grant(t, c)
	var leader *v3electionpb.LeaderKey
	return member{
		acquire: func(ctx context.Context) (string, error) {
			answer, err := service.Campaign(ctx, &v3electionpb.CampaignRequest{
				Name: []byte(prefix), Lease: lease, Value: []byte("served"),
			})
			leader = answer.GetLeader()
			return string(leader.GetKey()), err
		},
		release: func(ctx context.Context) error {
			_, err := service.Resign(ctx, &v3electionpb.ResignRequest{Leader: leader})
			return err
		},
	}
}
