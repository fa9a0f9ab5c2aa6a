package main

import (
	"fmt"

	"github.com/etcdlock/locks/embedtest"
)

// etcdServer is a cluster in this process, with the ticks that it has in production.
type etcdServer struct {
	name    string
	cluster *embedtest.Cluster
}

func etcdName(members int, fsync bool) string {
	name := fmt.Sprintf("etcd, %d member", members)
	if members > 1 {
		name += "s"
	}
	if fsync {
		return name + ", fsync"
	}
	return name + ", no fsync"
}

func startEtcd(members int, fsync bool) (Server, error) {
	opts := []embedtest.Option{embedtest.WithSize(members), embedtest.WithRealTicks()}
	if fsync {
		opts = append(opts, embedtest.WithFsync())
	}
	cluster, err := embedtest.Open(opts...)
	if err != nil {
		return nil, fmt.Errorf("open a cluster: %w", err)
	}
	return &etcdServer{etcdName(members, fsync), cluster}, nil
}

func (s *etcdServer) Name() string     { return s.name }
func (s *etcdServer) Backend() Backend { return Etcd }
func (s *etcdServer) Close() error     { return s.cluster.Close() }
