package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Server is something that peers connect to, started by this program.
type Server interface {
	Name() string // kind and durability, for the report
	Backend() Backend
	Layout() layout // zero where the options have no say in it
	Close() error
}

// tidier is a server that keeps deleted data until tidy is called.
type tidier interface {
	tidy(ctx context.Context) error
}

// address is where a server listens.
type address struct{ network, address string }

// absence says why a server could not be had.
type absence struct {
	Server string
	Reason string
}

// errAbsent is wrapped with what is not installed.
var errAbsent = errors.New("not installed")

// starter starts one server.
type starter struct {
	name    string
	backend Backend
	start   func(ctx context.Context) (Server, error)
}

// starters are the servers that the options ask for.
func starters(o options) []starter {
	var all []starter
	for _, l := range layouts(o) {
		all = append(all, starter{etcdName(l), Etcd, func(context.Context) (Server, error) { return startEtcd(l) }})
	}
	all = append(all,
		starter{redisDefault, Redis, func(ctx context.Context) (Server, error) { return startRedis(ctx, redisDefault) }},
		starter{redisAlways, Redis, func(ctx context.Context) (Server, error) {
			return startRedis(ctx, redisAlways, "--appendonly", "yes", "--appendfsync", "always")
		}},
	)
	for _, l := range layouts(o) {
		all = append(all, starter{zookeeperName(l), ZooKeeper, func(ctx context.Context) (Server, error) {
			return startZooKeeper(ctx, l, o.zookeeper)
		}})
	}
	return append(all, starter{"in memory", Memory, func(context.Context) (Server, error) { return newMemoryServer(), nil }})
}

// startServers starts those that the backends need. One that is not installed, or does not
// start, is left out and listed; without etcd there is nothing to compare with, so that is
// an error.
func startServers(ctx context.Context, o options, need []Backend, progress io.Writer) (started []Server, absent []absence, err error) {
	defer func() {
		if err != nil {
			closeServers(started)
		}
	}()
	for _, s := range starters(o) {
		if !slices.Contains(need, s.backend) {
			continue
		}
		_, _ = fmt.Fprintf(progress, "starting %s\n", s.name)
		server, err := s.start(ctx)
		switch {
		case err == nil:
			started = append(started, server)
		case s.backend == Etcd || ctx.Err() != nil:
			return started, absent, fmt.Errorf("start %s: %w", s.name, err)
		default:
			_, _ = fmt.Fprintf(progress, "  absent: %v\n", err)
			absent = append(absent, absence{s.name, err.Error()})
		}
	}
	return started, absent, nil
}

func closeServers(all []Server) {
	for _, s := range all {
		_ = s.Close()
	}
}
