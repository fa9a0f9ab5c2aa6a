package closer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/internal/closer"
)

// hanging is a Watcher whose Close returns when it is released.
type hanging struct {
	clientv3.Watcher
	release chan struct{}
}

func (h hanging) Close() error {
	<-h.release
	return h.Watcher.Close()
}

func TestAClientThatDoesNotCloseIsLeftWithoutItsConnection(t *testing.T) {
	client, err := embedtest.Start(t).NewClient()
	require.NoError(t, err)
	watcher := hanging{client.Watcher, make(chan struct{})}
	client.Watcher = watcher
	require.False(t, closer.Close(client, time.Millisecond))
	require.Equal(t, connectivity.Shutdown, client.ActiveConnection().GetState())
	close(watcher.release)
}

func TestAClientThatClosesIsWaitedFor(t *testing.T) {
	client, err := embedtest.Start(t).NewClient()
	require.NoError(t, err)
	require.True(t, closer.Close(client, time.Minute))
	require.Error(t, client.Ctx().Err())
}
