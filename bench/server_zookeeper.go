package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"
)

// zookeeperServer is one server, or an ensemble of several, each in a process of its own.
type zookeeperServer struct {
	layout    layout
	processes []*process
	addresses []address // for clients

	clients atomic.Uint64 // that have been given an address
}

func zookeeperName(l layout) string { return "zookeeper, " + l.String() }

// startZooKeeper runs servers from the jars of a classpath, as the scripts of packages
// differ from one to the next.
func startZooKeeper(ctx context.Context, l layout, classpath string) (Server, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("java: %w (%w)", errAbsent, err)
	}
	if jars := filepath.SplitList(classpath); len(jars) == 0 || !exists(jars[0]) {
		return nil, fmt.Errorf("zookeeper: %w (no file %q; see -zookeeper)", errAbsent, classpath)
	}
	all, err := zookeeperMembers(l.members)
	if err != nil {
		return nil, fmt.Errorf("find ports for zookeeper: %w", err)
	}
	s := &zookeeperServer{layout: l}
	for i, m := range all {
		p, err := startProcess(func(dir string) (*exec.Cmd, error) {
			config, err := writeZooKeeperConfig(dir, l.fsync, all, i)
			if err != nil {
				return nil, fmt.Errorf("write zookeeper's configuration: %w", err)
			}
			return exec.Command(java, "-Xmx1g", "-Dzookeeper.admin.enableServer=false", "-Dzookeeper.jmx.log4j.disable=true",
				"-cp", classpath, "org.apache.zookeeper.server.quorum.QuorumPeerMain", config), nil
		})
		if err != nil {
			_ = s.Close()
			return nil, err
		}
		s.processes = append(s.processes, p)
		s.addresses = append(s.addresses, address{"tcp", fmt.Sprintf("127.0.0.1:%d", m.client)})
	}
	if err := s.await(ctx); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	return s, nil
}

// await returns when each server has opened a session. That has to be committed, so there
// is a leader then, and each server leads or follows. All are awaited at the same time, as one
// that exits says why, while those that miss it only do not answer.
func (s *zookeeperServer) await(ctx context.Context) error {
	n := len(s.processes)
	return parallel(ctx, n, n, func(ctx context.Context, i int) error {
		err := s.processes[i].await(ctx, func(ctx context.Context) error {
			probe := zkClient{address: s.addresses[i]}
			defer probe.Close()
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			_, err := probe.Session(ctx, 0)
			return err
		})
		if err != nil {
			return fmt.Errorf("server %d of %d: %w", i+1, n, err)
		}
		return nil
	})
}

func (s *zookeeperServer) Name() string     { return zookeeperName(s.layout) }
func (s *zookeeperServer) Backend() Backend { return ZooKeeper }
func (s *zookeeperServer) Layout() layout   { return s.layout }

// next returns the servers by turns. A client that knew all would choose one at random,
// which with few clients is often the same.
func (s *zookeeperServer) next() address {
	return s.addresses[(s.clients.Add(1)-1)%uint64(len(s.addresses))]
}

func (s *zookeeperServer) Close() error {
	var errs []error
	for _, p := range s.processes {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}
