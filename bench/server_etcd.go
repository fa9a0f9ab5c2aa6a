package main

import (
	"context"
	"fmt"

	"github.com/etcdlock/locks/embedtest"
)

// etcdServer is a cluster in this process, with the ticks that it has in production.
type etcdServer struct {
	layout  layout
	cluster *embedtest.Cluster
}

func etcdName(l layout) string { return "etcd, " + l.String() }

func startEtcd(l layout) (Server, error) {
	opts := []embedtest.Option{embedtest.WithSize(l.members), embedtest.WithRealTicks()}
	if l.fsync {
		opts = append(opts, embedtest.WithFsync())
	}
	cluster, err := embedtest.Open(opts...)
	if err != nil {
		return nil, fmt.Errorf("open a cluster: %w", err)
	}
	return &etcdServer{l, cluster}, nil
}

func (s *etcdServer) Name() string     { return etcdName(s.layout) }
func (s *etcdServer) Backend() Backend { return Etcd }
func (s *etcdServer) Layout() layout   { return s.layout }
func (s *etcdServer) Close() error     { return s.cluster.Close() }

// tidy forgets the history, or else the space that embedtest gives its etcd would soon be full.
func (s *etcdServer) tidy(ctx context.Context) error {
	_, err := s.cluster.Compact(ctx)
	return err
}
