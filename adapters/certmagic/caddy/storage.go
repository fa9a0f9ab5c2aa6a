package caddylock

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"
)

func init() { caddy.RegisterModule(new(Storage)) }

// Storage keeps Caddy's certificates and locks in etcd. Strings may have placeholders, {env.ETCD_PASSWORD} for example.
type Storage struct {
	// The members of etcd. Default: localhost:2379
	Endpoints []string `json:"endpoints,omitempty"`
	// What the keys begin with. Instances of Caddy that share certificates have the same. Default: caddy
	Prefix string `json:"prefix,omitempty"`
	// A user of etcd with permission to read and write the keys below the prefix and below etcdlock/.
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	// PEM files. With any of them the connection is encrypted. Default of the first: the system's authorities
	CACert string `json:"ca_cert,omitempty"`
	Cert   string `json:"cert,omitempty"`
	Key    string `json:"key,omitempty"`
	// After how long the locks of a crashed Caddy are free. Default: 15s
	TTL caddy.Duration `json:"ttl,omitempty"`

	poolKey string // of the connection; empty if there is none
	storage certmagic.Storage
}

var (
	_ caddy.StorageConverter = (*Storage)(nil)
	_ caddy.Provisioner      = (*Storage)(nil)
	_ caddy.CleanerUpper     = (*Storage)(nil)
)

// CaddyModule describes the module.
func (*Storage) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.storage.etcdlock", New: func() caddy.Module { return new(Storage) }}
}

// Provision connects to etcd. Without a user no request is made.
func (s *Storage) Provision(ctx caddy.Context) error {
	if err := s.complete(); err != nil {
		return err
	}
	key, err := json.Marshal(s)
	if err != nil {
		return err
	}
	shared, _, err := connections.LoadOrNew(string(key), func() (caddy.Destructor, error) { return connect(s, ctx.Logger()) })
	if err != nil {
		return fmt.Errorf("connecting to etcd: %w", err)
	}
	s.poolKey = string(key)
	s.storage = shared.(*connection).storage
	return nil
}

// complete replaces placeholders and adds defaults.
func (s *Storage) complete() error {
	replacer := caddy.NewReplacer()
	replace := func(text *string) { *text = replacer.ReplaceKnown(*text, "") }
	for i := range s.Endpoints {
		replace(&s.Endpoints[i])
	}
	for _, text := range []*string{&s.Prefix, &s.Username, &s.Password, &s.CACert, &s.Cert, &s.Key} {
		replace(text)
	}
	if len(s.Endpoints) == 0 {
		s.Endpoints = []string{"localhost:2379"}
	}
	if s.Prefix == "" {
		s.Prefix = "caddy"
	}
	if s.TTL == 0 {
		s.TTL = caddy.Duration(15 * time.Second)
	}
	switch {
	case s.TTL < 0:
		return errors.New("ttl must be positive")
	case s.Password != "" && s.Username == "":
		return errors.New("a password needs a username")
	case (s.Cert == "") != (s.Key == ""):
		return errors.New("cert and key go together")
	case strings.HasPrefix(s.Prefix+"/", "etcdlock/"):
		return errors.New("the prefix etcdlock is that of the locks")
	}
	return nil
}

// CertMagicStorage returns the storage. After [Storage.Cleanup], and that of all others with the same settings, it fails.
func (s *Storage) CertMagicStorage() (certmagic.Storage, error) {
	if s.storage == nil {
		return nil, errors.New("the storage has not been provisioned")
	}
	return s.storage, nil
}

// Cleanup closes the connection, unless another configuration uses it.
func (s *Storage) Cleanup() error {
	if s.poolKey == "" {
		return nil
	}
	_, err := connections.Delete(s.poolKey)
	s.poolKey = ""
	return err
}
