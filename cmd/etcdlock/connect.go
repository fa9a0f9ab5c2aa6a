package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"golang.org/x/term"
	"google.golang.org/grpc/grpclog"

	"go.etcd.io/etcd/client/pkg/v3/srv"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/internal/closer"
)

// connection is how to reach etcd: etcdctl's flags, and where the locks are in it.
type connection struct {
	flags *pflag.FlagSet // those that ETCDCTL_ variables stand for

	endpoints             []string
	user, password        string
	token                 string
	secure                clientv3.SecureConfig
	insecureDiscovery     bool
	domain, service       string
	dial, command         time.Duration
	keepAlive, keepAlive2 time.Duration
	sendBytes, recvBytes  int
	debug                 bool

	namespace string
	prefix    bool
}

func newConnection(to *pflag.FlagSet) *connection {
	c := &connection{flags: pflag.NewFlagSet("", pflag.ContinueOnError)}
	f := c.flags
	f.StringSliceVar(&c.endpoints, "endpoints", []string{"127.0.0.1:2379"}, "etcd's addresses, separated by commas")
	f.StringVar(&c.secure.Cacert, "cacert", "", "`file` of the authority that signs servers' certificates")
	f.StringVar(&c.secure.Cert, "cert", "", "`file` of the client's certificate")
	f.StringVar(&c.secure.Key, "key", "", "`file` of the certificate's key")
	f.StringVar(&c.user, "user", "", "`name[:password]` of the user; asks for a password on the terminal")
	f.StringVar(&c.password, "password", "", "password of the user")
	f.StringVar(&c.token, "auth-jwt-token", "", "JWT to authenticate with, instead of a user")
	f.DurationVar(&c.dial, "dial-timeout", 2*time.Second, "limit of an attempt to connect")
	f.DurationVar(&c.command, "command-timeout", 5*time.Second, "limit of a request, apart from the wait for a lock")
	f.DurationVar(&c.keepAlive, "keepalive-time", 10*time.Second, "how often an idle connection is probed, 10s at least")
	f.DurationVar(&c.keepAlive2, "keepalive-timeout", 6*time.Second, "how long a probe may be unanswered")
	f.BoolVar(&c.secure.InsecureTransport, "insecure-transport", true, "no TLS, unless --cacert, --cert or an https address is given")
	f.BoolVar(&c.secure.InsecureSkipVerify, "insecure-skip-tls-verify", false, "accept any certificate of a server; for tests only")
	f.BoolVar(&c.insecureDiscovery, "insecure-discovery", true, "accept addresses without TLS from --discovery-srv")
	f.StringVarP(&c.domain, "discovery-srv", "d", "", "`domain` whose SRV records name the addresses")
	f.StringVar(&c.service, "discovery-srv-name", "", "service `name` in the SRV records")
	f.IntVar(&c.sendBytes, "max-request-bytes", 0, "limit of a request's size; 0 is 2 MiB")
	f.IntVar(&c.recvBytes, "max-recv-bytes", 0, "limit of an answer's size; 0 is none")
	f.BoolVar(&c.debug, "debug", false, "log what etcd's client does")
	to.AddFlagSet(f)
	to.StringVar(&c.namespace, "namespace", "etcdlock", "what the names of locks are prefixed with in etcd")
	to.BoolVar(&c.prefix, "prefix", false, "names are whole prefixes in etcd: the queue of \"etcdctl lock NAME\"")
	return c
}

// readEnvironment sets flags that were not given from ETCDCTL_ variables. Others of these are ignored, and no flag
// is read from ETCDLOCK_ variables, which describe a lock that is held.
func (c *connection) readEnvironment(lookup func(string) (string, bool)) (err error) {
	c.flags.VisitAll(func(f *pflag.Flag) {
		variable := "ETCDCTL_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := lookup(variable)
		if !ok || value == "" || f.Changed || err != nil {
			return
		}
		if bad := c.flags.Set(f.Name, value); bad != nil {
			err = mistakef("%s=%q: %w", variable, value, bad)
		}
	})
	return err
}

// options are those of every lock.
func (c *connection) options() []etcdlock.Option {
	if c.prefix {
		return []etcdlock.Option{etcdlock.AtPrefix()}
	}
	return []etcdlock.Option{etcdlock.WithNamespace(c.namespace)}
}

// client returns a client, which connects with its first request.
func (c *connection) client() (*clientv3.Client, error) {
	spec := clientv3.ConfigSpec{
		DialTimeout: c.dial, KeepAliveTime: c.keepAlive, KeepAliveTimeout: c.keepAlive2,
		MaxCallSendMsgSize: c.sendBytes, MaxCallRecvMsgSize: c.recvBytes, Secure: &c.secure,
	}
	var err error
	if spec.Endpoints, err = c.addresses(); err != nil {
		return nil, err
	}
	if spec.Auth, err = c.credentials(); err != nil {
		return nil, err
	}
	logger := c.logger()
	config, err := clientv3.NewClientConfig(&spec, logger)
	if err != nil {
		return nil, mistake(err) // a file of a certificate
	}
	config.Logger = logger
	client, err := clientv3.New(*config)
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd at %s: %w", strings.Join(spec.Endpoints, ","), err)
	}
	return client, nil
}

// lastingClient is client for what goes on until a signal: while etcd is away there is no client for a user with a
// password. It returns nil if ctx ends before.
func (c *connection) lastingClient(ctx context.Context) (*clientv3.Client, error) {
	for said := false; ctx.Err() == nil; said = true {
		client, err := c.client()
		if err == nil || !unavailable(err) {
			return client, err
		}
		if !said {
			say("%s; trying again", err)
		}
		sleep(ctx, probeEvery)
	}
	return nil, nil
}

func (c *connection) logger() *zap.Logger {
	if !c.debug {
		grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
		return zap.NewNop()
	}
	grpclog.SetLoggerV2(grpclog.NewLoggerV2WithVerbosity(os.Stderr, os.Stderr, os.Stderr, 4))
	logger, err := zap.NewDevelopment()
	if err != nil {
		return zap.NewNop()
	}
	return logger
}

func (c *connection) addresses() ([]string, error) {
	if c.domain == "" {
		addresses := make([]string, len(c.endpoints))
		for i, e := range c.endpoints {
			addresses[i] = strings.TrimSpace(e)
		}
		if strings.Join(addresses, "") == "" {
			return nil, mistakef("--endpoints has no address")
		}
		return addresses, nil
	}
	found, err := srv.GetClient("etcd-client", c.domain, c.service)
	if err != nil {
		return nil, &exitError{code: exitUnavailable, err: fmt.Errorf("SRV records of %s: %w", c.domain, err)}
	}
	if !c.insecureDiscovery {
		c.secure.ServerName = c.domain
	}
	var addresses []string
	for _, e := range found.Endpoints {
		if c.insecureDiscovery || !strings.HasPrefix(e, "http://") {
			addresses = append(addresses, e)
		}
	}
	return addresses, nil
}

// credentials returns nil if there are none.
func (c *connection) credentials() (*clientv3.AuthConfig, error) {
	switch {
	case c.token != "":
		return &clientv3.AuthConfig{Token: c.token}, nil
	case c.user == "":
		return nil, nil
	case c.password != "":
		return &clientv3.AuthConfig{Username: c.user, Password: c.password}, nil
	}
	name, password, given := strings.Cut(c.user, ":")
	if given {
		return &clientv3.AuthConfig{Username: name, Password: password}, nil
	}
	stdin := int(os.Stdin.Fd())
	if !term.IsTerminal(stdin) {
		return nil, mistake(errors.New("the user has no password: give --password, or run on a terminal"))
	}
	fmt.Fprint(os.Stderr, "Password: ")
	typed, err := term.ReadPassword(stdin)
	fmt.Fprintln(os.Stderr)
	if err != nil {
		return nil, fmt.Errorf("reading the password: %w", err)
	}
	c.password = string(typed) // for the next client
	return &clientv3.AuthConfig{Username: name, Password: c.password}, nil
}

// limited bounds a command that does not wait for a lock.
func (c *connection) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.command)
}

// closeClient closes a client at the end of a command.
func closeClient(client *clientv3.Client) { closer.Close(client, 2*time.Second) }
