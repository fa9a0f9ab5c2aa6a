package session_test

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy"
	"google.golang.org/grpc"
)

// behindProxy returns a client that reaches the cluster's leases through etcd's own proxy.
func behindProxy(t *testing.T, direct *clientv3.Client) *clientv3.Client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	leases, done := grpcproxy.NewLeaseProxy(ctx, direct)
	server := grpc.NewServer()
	etcdserverpb.RegisterLeaseServer(server, leases)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{listener.Addr().String()}, Logger: direct.GetLogger()})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = client.Close()
		cancel()
		server.Stop()
		require.NoError(t, <-served)
		<-done
	})
	return client
}

// It ends a stream as soon as that has no more requests, without an answer to those before.
func TestSessionsWorkBehindEtcdsProxy(t *testing.T) {
	c := startEtcd(t)
	s := create(t, behindProxy(t, c.Client(t)), slack)
	for range 2 {
		awaitLater(t, 1, s)
		require.NoError(t, s.Renew(t.Context()))
	}
}
