package proof_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

// trouble is one thing that goes wrong. make returns how to mend it.
type trouble struct {
	name string
	make func(s *scene) (mend func())
}

// probe is the key that the tests read. No fault concerns it.
const probe = "revision"

var methods = []string{"Txn", "Range", "LeaseGrant", "LeaseRevoke"}

// swallowed is the trouble that lets events vanish, which etcd itself never does.
const swallowed = "swallowed events"

// passing are refusals that are over in a moment.
var passing = []error{rpctypes.ErrTooManyRequests, rpctypes.ErrNoLeader, rpctypes.ErrLeaderChanged, rpctypes.ErrTimeout}

func pick[T any](s *scene, of []T) T { return of[s.random.IntN(len(of))] }

func upTo(s *scene, most time.Duration) time.Duration {
	return time.Duration(s.random.Int64N(int64(most)))
}

// sparing makes a fault bite one out of so many requests, by chance, and no probe.
func (s *scene) sparing(many int) embedtest.FaultOption {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(s.random.Uint64(), 0))
	return embedtest.When(func(message any) bool {
		if read, ok := message.(*etcdserverpb.RangeRequest); ok && string(read.Key) == probe {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(many) == 0
	})
}

// onLink is a trouble of the link of one process.
func onLink(harm func(s *scene, l *embedtest.Link)) func(s *scene) func() {
	return func(s *scene) func() {
		l := s.link()
		if l == nil {
			return func() {}
		}
		harm(s, l)
		return func() { l.Heal() }
	}
}

// some is all members, or one.
func (s *scene) some() []*embedtest.Member {
	if s.random.IntN(2) == 0 {
		return nil
	}
	return []*embedtest.Member{pick(s, s.cluster.Members())}
}

// faults are troubles of networks and of requests.
var faults = []trouble{
	{"black hole", onLink(func(s *scene, l *embedtest.Link) { l.Blackhole(s.some()...) })},
	{"cut", onLink(func(s *scene, l *embedtest.Link) { l.Cut(s.some()...) })},
	{"delay", onLink(func(s *scene, l *embedtest.Link) { l.Delay(upTo(s, 150*time.Millisecond)) })},
	{"lost replies", func(s *scene) func() {
		return s.cluster.LoseReply(pick(s, methods), s.sparing(2), embedtest.Times(1+s.random.IntN(4))).Heal
	}},
	{"lost requests", func(s *scene) func() {
		return s.cluster.LoseRequest(pick(s, methods), s.sparing(2), embedtest.Times(1+s.random.IntN(4))).Heal
	}},
	{"late requests", func(s *scene) func() {
		return s.cluster.Hold("Txn", s.sparing(2+s.random.IntN(6)), embedtest.Times(10)).Heal
	}},
	{"passing refusals", func(s *scene) func() {
		return s.cluster.Refuse(pick(s, methods), pick(s, passing), s.sparing(2), embedtest.Times(10)).Heal
	}},
	{"unanswered renewals", func(s *scene) func() { return s.cluster.DropKeepAlives().Heal }},
	{"late events", func(s *scene) func() {
		return s.cluster.Delay("Watch", upTo(s, 500*time.Millisecond), embedtest.Times(20)).Heal
	}},
	{swallowed, func(s *scene) func() {
		return s.cluster.SwallowWatchEvents(embedtest.Times(1 + s.random.IntN(5))).Heal
	}},
	{"broken watches", func(s *scene) func() {
		return s.cluster.Refuse("Watch", errors.New("broken"), embedtest.Times(1+s.random.IntN(3))).Heal
	}},
	{"compaction", func(s *scene) func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = s.client.Compact(ctx, s.witness.Revision()) // not more, or the history has a gap
		return func() {}
	}},
	{"no space", func(s *scene) func() {
		s.must("alarm", func(ctx context.Context) error { return s.cluster.RaiseAlarm(ctx, etcdserverpb.AlarmType_NOSPACE) })
		return func() { s.must("disarm", s.cluster.DisarmAlarms) }
	}},
}

// strikes are troubles of members. There is one at a time.
var strikes = []trouble{
	{"killed member", func(s *scene) func() { return s.down(pick(s, s.cluster.Members()), (*embedtest.Member).Kill) }},
	{"stopped member", func(s *scene) func() { return s.down(pick(s, s.cluster.Members()), (*embedtest.Member).Stop) }},
	{"isolated member", func(s *scene) func() {
		m := pick(s, s.cluster.Members())
		m.Isolate()
		return m.Heal
	}},
	{"isolated leader", func(s *scene) func() {
		m := s.cluster.Leader()
		if m == nil {
			return func() {}
		}
		m.Isolate()
		return m.Heal
	}},
	{"moved leader", func(s *scene) func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.cluster.MoveLeader(ctx, pick(s, s.cluster.Members()))
		return func() {}
	}},
}

// down ends a member until it is mended.
func (s *scene) down(m *embedtest.Member, end func(*embedtest.Member)) (mend func()) {
	end(m)
	return func() {
		err := m.Restart()
		for end := time.Now().Add(patience); err != nil && time.Now().Before(end); {
			err = m.Restart()
		}
		if err != nil {
			s.t.Errorf("the test itself: %v", err)
		}
	}
}

// permission is taken away, or half of it, and given back.
var permission = trouble{"no permission", func(s *scene) func() {
	const first = "etcdlock/"
	end := clientv3.GetPrefixRangeEnd(first)
	grant := func(what clientv3.PermissionType) {
		s.must("grant", func(ctx context.Context) error {
			_, err := s.client.RoleGrantPermission(ctx, user, first, end, what)
			return err
		})
	}
	switch s.random.IntN(3) {
	case 0:
		grant(clientv3.PermissionType(clientv3.PermRead))
	case 1:
		grant(clientv3.PermissionType(clientv3.PermWrite))
	default:
		s.must("revoke", func(ctx context.Context) error {
			_, err := s.client.RoleRevokePermission(ctx, user, first, end)
			if errors.Is(err, rpctypes.ErrPermissionNotGranted) { // an earlier attempt has done it
				return nil
			}
			return err
		})
	}
	return func() { grant(clientv3.PermissionType(clientv3.PermReadWrite)) }
}}
