package embedtest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

var (
	alice = embedtest.User{Name: "alice", Password: "a", Grants: []embedtest.Grant{
		embedtest.ReadWrite("alice/"), embedtest.Read("shared/"), embedtest.Write("inbox/"),
	}}
	bob = embedtest.User{Name: "bob", Password: "b"}
	eve = embedtest.User{Name: "eve", Password: "e", Grants: []embedtest.Grant{embedtest.Read("")}}
)

func TestGrantsArePermissionsByPrefix(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3), embedtest.WithAuth("secret", alice, bob, eve))
	put(t, c.Client(t), "shared/k", "v") // root may do anything
	for _, tt := range []struct {
		user, key   string
		read, write bool
	}{
		{"alice", "alice/k", true, true},
		{"alice", "alice0", false, false}, // the first key behind the prefix
		{"alice", "alice", false, false},
		{"alice", "shared/k", true, false},
		{"alice", "inbox/k", false, true},
		{"bob", "alice/k", false, false},
		{"eve", "alice/k", true, false},
		{"eve", "\x00", true, false},
		{"eve", "\xff", true, false},
	} {
		t.Run(tt.user+" "+tt.key, func(t *testing.T) {
			client := c.ClientAs(t, tt.user)
			_, readErr := client.Get(within(t, patience), tt.key)
			_, writeErr := client.Put(within(t, patience), tt.key, "v")
			requirePermitted(t, tt.read, readErr)
			requirePermitted(t, tt.write, writeErr)
		})
	}
}

func requirePermitted(t *testing.T, permitted bool, err error) {
	t.Helper()
	if permitted {
		require.NoError(t, err)
	} else {
		require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	}
}

func TestNobodyGetsInWithoutTheRightPassword(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3), embedtest.WithAuth("secret", alice))
	for _, m := range c.Members() {
		cfg := clientv3.Config{Endpoints: []string{m.Endpoint()}}
		nobody, err := clientv3.New(cfg)
		require.NoError(t, err)
		defer nobody.Close()
		_, err = nobody.Get(within(t, patience), "alice/k", clientv3.WithSerializable())
		require.ErrorIs(t, err, rpctypes.ErrUserEmpty)

		cfg.Username, cfg.Password = "alice", "guessed"
		_, err = clientv3.New(cfg)
		require.ErrorIs(t, err, rpctypes.ErrAuthFailed)
		cfg.Username = "mallory"
		_, err = clientv3.New(cfg)
		require.ErrorIs(t, err, rpctypes.ErrAuthFailed)
	}
	_, err := c.NewClientAs("mallory")
	require.ErrorContains(t, err, "mallory")
}

func TestTokensExpire(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithAuth("secret", alice), embedtest.WithTokenTTL(time.Second))
	root := c.Client(t)
	granted, err := root.Authenticate(within(t, patience), alice.Name, alice.Password)
	require.NoError(t, err)
	// A client that has a token only cannot ask for another one.
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints(), Token: granted.Token})
	require.NoError(t, err)
	defer client.Close()
	put(t, client, "alice/k", "v")

	// Each use lets a token live on, so the pause has to be longer than it lives unused.
	require.Eventually(t, func() bool {
		_, err = client.Get(within(t, patience), "alice/k")
		return err != nil
	}, patience, 2500*time.Millisecond)
	require.ErrorIs(t, err, rpctypes.ErrInvalidAuthToken)
	require.Equal(t, "v", get(t, root, "alice/k"), "a client with a password gets a new token")
}

func TestWhatTheClusterDoesByItselfNeedsNoUser(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3), embedtest.WithAuth("secret", alice), embedtest.WithTLS())
	client := c.ClientAs(t, "alice")
	put(t, client, "alice/k", "old")
	put(t, client, "alice/k", "new")
	revision, err := c.Compact(within(t, patience))
	require.NoError(t, err)
	_, err = client.Get(within(t, patience), "alice/k", clientv3.WithRev(revision-1))
	require.ErrorIs(t, err, rpctypes.ErrCompacted)

	for _, m := range c.Members() {
		require.NoError(t, c.MoveLeader(within(t, patience), m))
	}
	for _, m := range c.Members() {
		require.NoError(t, m.Restart())
		require.Equal(t, "new", get(t, client, "alice/k"))
	}
}

func TestUsersSurviveInADirectory(t *testing.T) {
	dir := t.TempDir()
	first := embedtest.Start(t, embedtest.WithDir(dir), embedtest.WithAuth("secret", alice))
	put(t, first.ClientAs(t, "alice"), "alice/k", "v")
	require.NoError(t, first.Close())
	second := embedtest.Start(t, embedtest.WithDir(dir), embedtest.WithAuth("secret", alice))
	require.Equal(t, "v", get(t, second.ClientAs(t, "alice"), "alice/k"))
}

func TestAuthenticationThatCannotBeIsRefused(t *testing.T) {
	for name, opts := range map[string][]embedtest.Option{
		"no password for root":  {embedtest.WithAuth("")},
		"no password":           {embedtest.WithAuth("secret", embedtest.User{Name: "alice"})},
		"no name":               {embedtest.WithAuth("secret", embedtest.User{Password: "a"})},
		"a second root":         {embedtest.WithAuth("secret", embedtest.User{Name: "root", Password: "a"})},
		"the same user twice":   {embedtest.WithAuth("secret", alice, alice)},
		"half a second":         {embedtest.WithTokenTTL(time.Second / 2)},
		"one second and a half": {embedtest.WithTokenTTL(3 * time.Second / 2)},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := embedtest.Open(opts...)
			if err == nil {
				defer c.Close()
			}
			require.ErrorContains(t, err, "embedtest: ")
		})
	}
}

func TestAClientIsMadeWhileTheLeaderChanges(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithAuth("secret"))
	for _, answer := range []error{rpctypes.ErrGRPCLeaderChanged, rpctypes.ErrGRPCNoLeader, rpctypes.ErrGRPCTimeoutDueToLeaderFail} {
		c.Refuse("Authenticate", answer, embedtest.Once())
		put(t, c.Client(t), "k", "v")
	}
	c.Refuse("Authenticate", rpctypes.ErrGRPCAuthFailed, embedtest.Once())
	_, err := c.NewClient()
	require.ErrorIs(t, err, rpctypes.ErrAuthFailed)
}

func TestAClientWaitsForItsTokenOnABusyMachine(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *embedtest.Cluster) {
		late := c.Delay("Authenticate", 25*time.Second)
		put(t, c.Client(t), "k", "v")
		put(t, c.ClientAs(t, "alice"), "alice/k", "v")
		client, _ := c.Link(t)
		put(t, client, "k", "w")
		late.Heal()

		c.LoseReply("Authenticate")
		began := time.Now()
		_, err := c.NewClient()
		require.ErrorContains(t, err, "no answer to the user's password in 30s")
		require.Equal(t, 30*time.Second, time.Since(began))
	}, embedtest.WithAuth("secret", alice))
}
