package etcdlock_test

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

// awaitState waits until the client's connection is in a state.
func awaitState(t *testing.T, c *clientv3.Client, want connectivity.State) {
	t.Helper()
	conn := c.ActiveConnection()
	for state := conn.GetState(); state != want; state = conn.GetState() {
		conn.Connect()
		require.True(t, conn.WaitForStateChange(within(t), state))
	}
}

// Requests of etcd's client wait for a connection, so that their own errors do not name the reason.
func TestErrorsSayThatTheConnectionIsBroken(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	inTheWay := lock(t, etcdlock.NewMutex(newSession(t, cluster.Client(t)), "orders"))
	client, link := cluster.Link(t)
	s := newSession(t, client)
	h := lock(t, etcdlock.NewMutex(s, "held"))
	ctx, cancel := context.WithCancel(within(t))
	waiting := locking(ctx, etcdlock.NewMutex(s, "orders"))
	awaitTickets(t, cluster.Client(t), 3)

	trouble := regexp.MustCompile("connection error|no connection to") // the latter while it is tried again
	link.Cut()
	awaitState(t, client, connectivity.TransientFailure)
	cancel()
	short, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer end()
	_, txn := h.Txn(short).Then(clientv3.OpPut("data", "")).Commit()
	for what, err := range map[string]error{
		"a waiter": await(t, "the waiter", waiting).err,
		"a lock":   expiring(t, etcdlock.NewMutex(s, "other")),
		"a txn":    txn,
	} {
		require.Len(t, trouble.FindAllString(err.Error(), -1), 1, "%s: %v", what, err)
	}
	link.Heal()
	unlock(t, h)
	unlock(t, inTheWay)
}
