package embedtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
)

const (
	rootUser = "root"

	// cheapestHash keeps the hashing of passwords, which a client asks for with every stream,
	// from costing a twentieth of a second each.
	cheapestHash = 4
)

// User is a user of etcd when authentication is on.
type User struct {
	Name     string
	Password string
	// Grants are what the user may do; without any it may use leases and nothing else.
	Grants []Grant
}

// Grant is a permission for every key that begins with a prefix. The empty prefix is that
// of all keys.
type Grant struct {
	prefix string
	access authpb.Permission_Type
}

// Read permits to read and to watch the keys that begin with prefix.
func Read(prefix string) Grant { return Grant{prefix, authpb.Permission_READ} }

// Write permits to put and to delete them, and not to read them.
func Write(prefix string) Grant { return Grant{prefix, authpb.Permission_WRITE} }

// ReadWrite permits both.
func ReadWrite(prefix string) Grant { return Grant{prefix, authpb.Permission_READWRITE} }

// WithAuth turns etcd's authentication on before the cluster is returned. There is a user root with all
// permissions, and each of the users has its own role of the same name. The clients
// of this package are root's; those of users come from [Cluster.ClientAs]. Tokens are of etcd's
// simple kind unless [WithConfig] sets AuthToken. Passwords are hashed as cheaply as possible. The default is no
// authentication.
//
// With [WithDir], and authentication on in that directory already, nothing is changed: the
// users must be the same.
func WithAuth(rootPassword string, users ...User) Option {
	return optionFunc(func(s *settings) {
		s.users = append([]User{{Name: rootUser, Password: rootPassword}}, users...)
	})
}

// WithTokenTTL sets the lifetime of the tokens of [WithAuth]: a token expires when it has not been used for ttl at a
// member, or up to a second later. etcd's client asks for a new one when a request is refused, and for each new
// stream; a stream keeps the one that it was opened with. It must be a number of whole seconds. The default is
// etcd's, 5 minutes.
func WithTokenTTL(ttl time.Duration) Option {
	return optionFunc(func(s *settings) { s.tokenTTL = ttl })
}

// checkAuth reports mistakes in the options.
func (s settings) checkAuth() error {
	if s.tokenTTL < time.Second || s.tokenTTL%time.Second != 0 {
		return fmt.Errorf("embedtest: a token's TTL is a number of whole seconds, not %v", s.tokenTTL)
	}
	for _, u := range s.users {
		if u.Name == "" || u.Password == "" {
			return errors.New("embedtest: every user needs a name and a password")
		}
	}
	return nil
}

// ClientAs is [Cluster.Client] for one of the users of [WithAuth]. A name that is not one of
// theirs ends the test with Fatal.
func (c *Cluster) ClientAs(tb testing.TB, user string) *clientv3.Client {
	tb.Helper()
	cfg, err := c.userConfig(user)
	if err != nil {
		tb.Fatal(err)
	}
	return c.testClient(tb, cfg)
}

// NewClientAs is [Cluster.ClientAs] for use without a test. It takes 30 s at most. The caller must close the client.
func (c *Cluster) NewClientAs(user string) (*clientv3.Client, error) {
	cfg, err := c.userConfig(user)
	if err != nil {
		return nil, err
	}
	return c.newClient(tokenTimeout, cfg)
}

func (c *Cluster) userConfig(user string) (clientv3.Config, error) {
	for _, u := range c.settings.users {
		if u.Name == user {
			cfg := c.clientConfig(c.Endpoints())
			cfg.Username, cfg.Password = u.Name, u.Password
			return cfg, nil
		}
	}
	return clientv3.Config{}, fmt.Errorf("embedtest: the cluster has no user %q", user)
}

// enableAuth makes the users and turns authentication on. It returns when that is so at every member: until then a
// member that is behind would let every client in.
func (c *Cluster) enableAuth(ctx context.Context) error {
	if len(c.settings.users) == 0 {
		return nil
	}
	server, err := c.leaderServer(ctx)
	if err != nil {
		return fmt.Errorf("embedtest: authentication: %w", err)
	}
	if !server.AuthStore().IsAuthEnabled() {
		if err := makeUsers(ctx, server, c.settings.users); err != nil {
			return fmt.Errorf("embedtest: authentication: %w", err)
		}
	}
	err = c.poll(ctx, func() bool {
		for _, m := range c.Members() {
			if server := m.Server(); server == nil || !server.AuthStore().IsAuthEnabled() {
				return false
			}
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("embedtest: authentication: %w", err)
	}
	return nil
}

// makeUsers calls the server directly: no client can be used before there are users.
func makeUsers(ctx context.Context, server *etcdserver.EtcdServer, users []User) error {
	for _, u := range users {
		_, err := server.UserAdd(ctx, &etcdserverpb.AuthUserAddRequest{
			Name: u.Name, Password: u.Password, Options: &authpb.UserAddOptions{},
		})
		if err != nil {
			return fmt.Errorf("user %q: %w", u.Name, err)
		}
		if u.Name != rootUser { // whose role is built in
			if err := makeRole(ctx, server, u); err != nil {
				return fmt.Errorf("role of user %q: %w", u.Name, err)
			}
		}
		_, err = server.UserGrantRole(ctx, &etcdserverpb.AuthUserGrantRoleRequest{User: u.Name, Role: u.Name})
		if err != nil {
			return fmt.Errorf("user %q: %w", u.Name, err)
		}
	}
	_, err := server.AuthEnable(ctx, &etcdserverpb.AuthEnableRequest{})
	return err
}

func makeRole(ctx context.Context, server *etcdserver.EtcdServer, u User) error {
	if _, err := server.RoleAdd(ctx, &etcdserverpb.AuthRoleAddRequest{Name: u.Name}); err != nil {
		return err
	}
	for _, g := range u.Grants {
		first := g.prefix
		if first == "" {
			first = "\x00" // the first key there can be
		}
		_, err := server.RoleGrantPermission(ctx, &etcdserverpb.AuthRoleGrantPermissionRequest{
			Name: u.Name,
			Perm: &authpb.Permission{
				PermType: g.access, Key: []byte(first), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(g.prefix)),
			},
		})
		if err != nil {
			return err
		}
	}
	return nil
}
