package proof_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

// user is that of the processes where there are passwords.
const user = "process"

// scene is a cluster with a witness, and what makes trouble there.
type scene struct {
	t         *testing.T
	cluster   *embedtest.Cluster
	client    *clientv3.Client // without faults of a link
	witness   *embedtest.History
	random    *rand.Rand
	long      bool
	passwords bool                   // permissions may be taken away; processes have no links
	link      func() *embedtest.Link // of one of the processes, or nil

	age age

	mu       sync.Mutex
	happened []string
}

// newScene starts one member or three, with or without passwords, as the seed says.
func newScene(t *testing.T, seed uint64) *scene {
	s := &scene{t: t, random: rand.New(rand.NewPCG(seed, 1)), long: seed > fixed, passwords: seed%4 == 3 || seed%8 == 4}
	size := 1
	if seed%2 == 0 {
		size = 3
	}
	opts := []embedtest.Option{embedtest.WithSize(size)}
	if size > 1 { // members that share a machine with many others need time to hear of each other
		opts = append(opts, embedtest.WithRealTicks())
	}
	if s.passwords {
		rights := []embedtest.Grant{embedtest.ReadWrite("etcdlock/"), embedtest.ReadWrite("work/")}
		opts = append(opts, embedtest.WithAuth("root", embedtest.User{Name: user, Password: user, Grants: rights}))
	}
	s.cluster = embedtest.Start(t, opts...)
	s.client = s.dial(s.cluster.NewClient)
	t.Cleanup(func() { closeClient(s.client) })
	s.witness = s.cluster.Record()
	t.Logf("%d members, passwords: %v", size, s.passwords)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("troubles:\n%s", strings.Join(s.happened, "\n"))
		}
	})
	return s
}

// connect returns a client for a process, and its link if it has one.
func (s *scene) connect() (client *clientv3.Client, link *embedtest.Link, closeAll func()) {
	if s.passwords {
		client = s.dial(func() (*clientv3.Client, error) { return s.cluster.NewClientAs(user) })
		return client, nil, func() { closeClient(client) }
	}
	client, link, err := s.cluster.NewLink()
	require.NoError(s.t, err)
	return client, link, func() {
		closeClient(client)
		link.Close()
	}
}

// dial makes a client. Where there are passwords it gets a token first, for which a busy machine, or a cluster that is down, takes long.
func (s *scene) dial(connect func() (*clientv3.Client, error)) *clientv3.Client {
	client, err := connect()
	for end := time.Now().Add(patience); err != nil && time.Now().Before(end); client, err = connect() {
		time.Sleep(50 * time.Millisecond) //nolint:forbidigo // polls
	}
	require.NoError(s.t, err)
	return client
}

// storm makes trouble, some of it the processes' own, and mends it all.
func (s *scene) storm(own ...trouble) {
	rounds, longest := 4, 700*time.Millisecond
	if s.long {
		rounds, longest = 16, 2*time.Second
	}
	for range rounds {
		s.pause(200*time.Millisecond, 800*time.Millisecond)
		makes := []trouble{pick(s, own), pick(s, faults)}
		switch {
		case s.passwords && s.random.IntN(2) == 0:
			makes = append(makes, permission)
		case s.random.IntN(4) < len(s.cluster.Members()): // without its only one etcd does nothing
			makes = append(makes, pick(s, strikes))
		default:
			makes = append(makes, pick(s, faults))
		}
		var mending sync.WaitGroup // one may need another: etcd takes orders with a majority only
		var mends []func()
		for _, trouble := range makes {
			s.note(trouble.name)
			mends = append(mends, trouble.make(s))
		}
		s.pause(100*time.Millisecond, longest)
		s.note("mended")
		for _, mend := range mends {
			mending.Go(mend)
		}
		mending.Wait()
	}
}

func (s *scene) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.happened = append(s.happened, fmt.Sprintf("%s at %d: %s", time.Now().Format("05.000"), s.witness.Revision(), what))
}

func (s *scene) pause(least, most time.Duration) {
	time.Sleep(least + time.Duration(s.random.Int64N(int64(most-least)))) //nolint:forbidigo // between troubles
}

// must makes a request that a trouble or its end needs, whatever the cluster's state is.
func (s *scene) must(what string, request func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := session.Retry(ctx, request); err != nil {
		s.t.Errorf("the test itself: %s: %v", what, err)
	}
}

// revision returns the present revision of etcd, at least that of the last answered write.
func (s *scene) revision() (revision int64) {
	s.must("revision", func(ctx context.Context) error {
		answer, err := s.client.Get(ctx, probe, clientv3.WithCountOnly())
		if err == nil {
			revision = answer.Header.Revision
		}
		return err
	})
	return revision
}

// pause waits for up to d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(rand.N(d)):
	case <-ctx.Done():
	}
}
