package proof_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

// The locks in this file are broken, each in a way in which real ones have been, and the
// checks have to notice. What one client does is recorded as for the real ones.

const brokenPrefix = "broken/"

// brokenHold is a key, and what its owner believes.
type brokenHold struct {
	client   *clientv3.Client
	key      string
	token    int64
	deadline time.Time
	over     bool
}

func (h *brokenHold) Err() error {
	if h.over || time.Now().After(h.deadline) {
		return errors.New("over")
	}
	return nil
}

func (h *brokenHold) Token() etcdlock.Token { return etcdlock.Token(h.token) }

func (h *brokenHold) Guards() []clientv3.Cmp {
	return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(h.key), "=", h.token)}
}

// stand puts a key into the queue.
func stand(t *testing.T, client *clientv3.Client, name string, lease clientv3.LeaseID) *brokenHold {
	answer, err := client.Txn(t.Context()).
		If(clientv3.Compare(clientv3.CreateRevision(brokenPrefix+name), "=", 0)).
		Then(clientv3.OpPut(brokenPrefix+name, "", clientv3.WithLease(lease))).Commit()
	require.NoError(t, err)
	require.True(t, answer.Succeeded)
	return &brokenHold{client: client, key: brokenPrefix + name, token: answer.Header.Revision, deadline: time.Now().Add(time.Hour)}
}

// gone waits until a key is deleted.
func gone(t *testing.T, client *clientv3.Client, key string, since int64) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for response := range client.Watch(ctx, key, clientv3.WithRev(since+1), clientv3.WithFilterPut()) {
		if len(response.Events) > 0 {
			return
		}
	}
	require.Fail(t, "never deleted", key)
}

func remove(t *testing.T, client *clientv3.Client, key string) {
	_, err := client.Delete(t.Context(), key)
	require.NoError(t, err)
}

var onlyOne = step{names: []string{"broken"}}

// requireCaught requires that both checks saw it.
func requireCaught(t *testing.T, h *history) {
	t.Helper()
	require.NotEmpty(t, h.violations(), "while it happened")
	require.Equal(t, porcupine.Illegal, h.explained(time.Minute), "afterwards")
}

// A waiter whose predecessor has left believes that it is next, without a look at the tickets
// ahead. But the predecessor had been waiting, too.
func TestAGrantWithoutALookIsCaught(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	h := newHistory(t)
	first := stand(t, client, "first", clientv3.NoLease)
	owner := h.acquired(1, onlyOne, first, 0, 0)
	second := stand(t, client, "second", clientv3.NoLease)
	called := h.now()
	third := stand(t, client, "third", clientv3.NoLease)
	remove(t, client, second.key) // gives up
	gone(t, client, second.key, third.token)
	successor := h.acquired(3, onlyOne, third, 0, called)
	require.True(t, owner.look())
	owner.released(true)
	successor.released(true)
	requireCaught(t, h)
}

// What an operator removes is not held against the lock: the checks are no stricter than the
// promises.
func TestAStrikeIsForgiven(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	h := newHistory(t)
	first := stand(t, client, "first", clientv3.NoLease)
	owner := h.acquired(1, onlyOne, first, 0, 0)
	called := h.now()
	second := stand(t, client, "second", clientv3.NoLease)
	strike(h, h.struck, ticketID{first.key, first.token})
	remove(t, client, first.key)
	successor := h.acquired(2, onlyOne, second, 0, called)
	require.True(t, owner.look())
	first.over = true
	owner.lost()
	successor.released(true)
	require.Empty(t, h.violations(), fmt.Sprint(h.steps))
	require.Equal(t, porcupine.Ok, h.explained(time.Minute))
}
