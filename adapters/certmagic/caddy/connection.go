package caddylock

import (
	"context"
	"errors"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	certmagiclock "github.com/etcdlock/locks/adapters/certmagic"
	"github.com/etcdlock/locks/session"
)

const (
	dialTimeout  = 5 * time.Second
	closeTimeout = 5 * time.Second
)

// connections are shared by configurations with the same settings: during a reload of Caddy the new one is there before
// the old one goes.
var connections = caddy.NewUsagePool()

type connection struct {
	client   *clientv3.Client
	sessions *session.Keeper
	storage  certmagic.Storage
}

func connect(s *Storage, logger *zap.Logger) (*connection, error) {
	spec := &clientv3.ConfigSpec{
		Endpoints: s.Endpoints, DialTimeout: dialTimeout,
		KeepAliveTime: 10 * time.Second, KeepAliveTimeout: 6 * time.Second,
	}
	if s.CACert != "" || s.Cert != "" {
		spec.Secure = &clientv3.SecureConfig{Cacert: s.CACert, Cert: s.Cert, Key: s.Key}
	}
	if s.Username != "" {
		spec.Auth = &clientv3.AuthConfig{Username: s.Username, Password: s.Password}
	}
	config, err := clientv3.NewClientConfig(spec, logger)
	if err != nil {
		return nil, err
	}
	config.Logger = logger
	client, err := clientv3.New(*config)
	if err != nil {
		return nil, err
	}
	sessions := session.Keep(client, session.WithTTL(time.Duration(s.TTL)))
	storage := certmagiclock.NewStorage(client, sessions, s.Prefix, certmagiclock.WithOnLost(func(name string, err error) {
		logger.Warn("lock lost: another instance may do the same", zap.String("lock", name), zap.Error(err))
	}))
	return &connection{client: client, sessions: sessions, storage: storage}, nil
}

// Destruct frees the locks and closes the connection.
func (c *connection) Destruct() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return errors.Join(c.sessions.Close(ctx), c.client.Close())
}
