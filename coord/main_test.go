package coord_test

import (
	"context"
	"flag"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

func TestMain(m *testing.M) {
	// Tests wait for leases more than they compute.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what has to happen.
const patience = 30 * time.Second

// keep returns a Keeper that is closed at the end of the test.
func keep(t testing.TB, client *clientv3.Client, opts ...session.Option) *session.Keeper {
	t.Helper()
	began := time.Now()
	clock := session.WithClock(func() time.Duration { return time.Since(began) }) // goes with virtual time
	k := session.Keep(client, append([]session.Option{clock}, opts...)...)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = k.Close(ctx)
	})
	return k
}

// limited returns a context that ends with the test, or after its patience.
func limited(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// requireEmpty waits until there is no key in etcd.
func requireEmpty(t testing.TB, client *clientv3.Client) {
	t.Helper()
	require.Eventually(t, func() bool {
		answer, err := client.Get(limited(t), "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly())
		return err == nil && answer.Count == 0
	}, patience, 10*time.Millisecond)
}

func start(t testing.TB, opts ...embedtest.Option) (*embedtest.Cluster, *clientv3.Client) {
	t.Helper()
	cluster := embedtest.Start(t, opts...)
	return cluster, cluster.Client(t)
}

// inVirtualTime runs a test that waits for leases.
func inVirtualTime(t *testing.T, test func(*testing.T, *embedtest.Cluster, *clientv3.Client)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster, client := start(t, embedtest.WithVirtualTime())
		test(t, cluster, client)
	})
}

// thatTouch narrows a fault of "Txn" down to transactions that put or delete a key with the prefix.
func thatTouch(prefix string) embedtest.FaultOption {
	return embedtest.When(func(message any) bool {
		return slices.ContainsFunc(message.(*etcdserverpb.TxnRequest).Success, func(op *etcdserverpb.RequestOp) bool {
			return strings.HasPrefix(string(op.GetRequestPut().GetKey()), prefix) ||
				strings.HasPrefix(string(op.GetRequestDeleteRange().GetKey()), prefix)
		})
	})
}

// loseOneReply loses the answer to the next transaction. The client does not wait for it long.
func loseOneReply(t testing.TB, cluster *embedtest.Cluster) {
	t.Helper()
	ctx, fault := limited(t), cluster.LoseReply("Txn", embedtest.Once())
	healed := make(chan struct{})
	go func() {
		defer close(healed)
		_ = fault.Wait(ctx)
		fault.Heal()
	}()
	t.Cleanup(func() { <-healed })
}
