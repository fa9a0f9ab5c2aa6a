package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/redis/go-redis/v9"
)

// The two durabilities of Redis. Its default writes a snapshot now and then: a crash loses
// minutes. The other writes each command to the disk before it is answered, as etcd and
// ZooKeeper do.
const (
	redisDefault = "redis, default"
	redisAlways  = "redis, fsync"
)

// redisServer is a redis-server on a unix socket.
type redisServer struct {
	*process
	name    string
	address address
}

func startRedis(ctx context.Context, name string, args ...string) (Server, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("redis-server: %w (%w)", errAbsent, err)
	}
	p, err := startProcess(func(dir string) (*exec.Cmd, error) {
		return exec.Command(binary, append([]string{
			"--port", "0", "--unixsocket", filepath.Join(dir, "redis.sock"), "--dir", dir,
			// Each of thousands of contenders may have a connection.
			"--maxclients", "20000",
		}, args...)...), nil
	})
	if err != nil {
		return nil, err
	}
	s := &redisServer{p, name, address{"unix", filepath.Join(p.dir, "redis.sock")}}
	c := redis.NewClient(&redis.Options{Network: s.address.network, Addr: s.address.address})
	defer func() { _ = c.Close() }()
	if err := p.await(ctx, func(ctx context.Context) error { return c.Ping(ctx).Err() }); err != nil {
		return nil, fmt.Errorf("redis-server: %w", err)
	}
	return s, nil
}

func (s *redisServer) Name() string     { return s.name }
func (s *redisServer) Backend() Backend { return Redis }
func (s *redisServer) Layout() layout   { return layout{} }
