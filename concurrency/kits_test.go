package concurrency_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	theirs "go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/goleak"

	"github.com/etcdlock/locks/concurrency"
	"github.com/etcdlock/locks/embedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type session interface {
	Client() *clientv3.Client
	Ctx() context.Context
	Done() <-chan struct{}
	Lease() clientv3.LeaseID
	Orphan()
	Close() error
}

type mutex interface {
	Lock(ctx context.Context) error
	TryLock(ctx context.Context) error
	Unlock(ctx context.Context) error
	IsOwner() clientv3.Cmp
	Key() string
	Header() *etcdserverpb.ResponseHeader
}

type election interface {
	Campaign(ctx context.Context, val string) error
	Proclaim(ctx context.Context, val string) error
	Resign(ctx context.Context) error
	Leader(ctx context.Context) (*clientv3.GetResponse, error)
	Observe(ctx context.Context) <-chan *clientv3.GetResponse
	Key() string
	Rev() int64
	Header() *etcdserverpb.ResponseHeader
}

// kit is one of the two packages.
type kit struct {
	newSession  func(ctx context.Context, client *clientv3.Client, ttl int) (session, error)
	newMutex    func(s session, pfx string) mutex
	newElection func(s session, pfx string) election
}

var ours = kit{
	newSession: func(ctx context.Context, client *clientv3.Client, ttl int) (session, error) {
		s, err := concurrency.NewSession(client, concurrency.WithTTL(ttl), concurrency.WithContext(ctx))
		if err != nil {
			return nil, err
		}
		return s, nil
	},
	newMutex: func(s session, pfx string) mutex { return concurrency.NewMutex(s.(*concurrency.Session), pfx) },
	newElection: func(s session, pfx string) election {
		return concurrency.NewElection(s.(*concurrency.Session), pfx)
	},
}

var etcds = kit{
	newSession: func(ctx context.Context, client *clientv3.Client, ttl int) (session, error) {
		s, err := theirs.NewSession(client, theirs.WithTTL(ttl), theirs.WithContext(ctx))
		if err != nil {
			return nil, err
		}
		return s, nil
	},
	newMutex:    func(s session, pfx string) mutex { return theirs.NewMutex(s.(*theirs.Session), pfx) },
	newElection: func(s session, pfx string) election { return theirs.NewElection(s.(*theirs.Session), pfx) },
}

// stand is what a call is tried on: a cluster, and one of the packages.
type stand struct {
	kit
	*testing.T
	cluster *embedtest.Cluster
	client  *clientv3.Client
	ctx     context.Context
}

// session returns one that is closed in the end.
func (s stand) session() session {
	s.Helper()
	ss, err := s.newSession(s.client.Ctx(), s.client, 30)
	require.NoError(s, err)
	s.Cleanup(func() { _ = ss.Close() })
	return ss
}

// keys returns how many keys there are.
func (s stand) keys() int64 {
	s.Helper()
	answer, err := s.client.Get(s.ctx, "", clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(s, err)
	return answer.Count
}

// within waits for what takes a moment.
func within[T any](s stand, what string, c <-chan T) T {
	s.Helper()
	select {
	case v := <-c:
		return v
	case <-s.ctx.Done():
		require.FailNow(s, "not in time: "+what)
		panic("unreachable")
	}
}

// told names the errors that programs compare with ==.
func told(errs ...error) string {
	var text string
	for _, err := range errs {
		switch err {
		case nil:
			text += "nil "
		case theirs.ErrLocked: //nolint:errorlint // unwrapped is what is promised
			text += "ErrLocked "
		case theirs.ErrLockReleased:
			text += "ErrLockReleased "
		case theirs.ErrSessionExpired:
			text += "ErrSessionExpired "
		case theirs.ErrElectionNotLeader:
			text += "ErrElectionNotLeader "
		case theirs.ErrElectionNoLeader:
			text += "ErrElectionNoLeader "
		case context.Canceled:
			text += "Canceled "
		case context.DeadlineExceeded:
			text += "DeadlineExceeded "
		default:
			text += fmt.Sprintf("[%v] ", err)
		}
	}
	return text[:len(text)-1]
}

// owns reports whether etcd takes the mutex for the owner.
func (s stand) owns(m mutex) string {
	answer, err := s.client.Txn(s.ctx).If(m.IsOwner()).Commit()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(answer.Succeeded)
}

func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func briefly(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}
