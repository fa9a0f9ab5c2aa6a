package proof_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

// The lock in this file is broken, in a way in which real ones have been, and the checks have to notice. What one
// client does is recorded as for the real ones.

// brokenHold is a ticket, and what its owner believes.
type brokenHold struct {
	ticketID
	over bool
}

func (h *brokenHold) Err() error {
	if h.over {
		return errors.New("over")
	}
	return nil
}

func (h *brokenHold) Token() etcdlock.Token { return etcdlock.Token(h.created) }

func (h *brokenHold) Guards() []clientv3.Cmp {
	return []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(h.key), "=", h.created)}
}

var onlyOne = step{names: []string{"broken"}}

// A waiter whose predecessor has left believes that it is next, without a look at the tickets
// ahead. But the predecessor had been waiting, too.
func TestAGrantWithoutALookIsCaught(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	owner := h.acquired(1, onlyOne, &brokenHold{ticketID: ticketID{"first", 1}}, 0, 0)
	successor := h.acquired(3, onlyOne, &brokenHold{ticketID: ticketID{"third", 3}}, 0, h.now())
	require.True(t, owner.look())
	owner.released(true)
	successor.released(true)
	require.NotEmpty(t, h.violations(), "while it happened")
	require.Equal(t, porcupine.Illegal, h.explained(time.Minute), "afterwards")
}

// What an operator removes is not held against the lock: the checks are no stricter than the
// promises.
func TestAStrikeIsForgiven(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	first := &brokenHold{ticketID: ticketID{"first", 1}}
	owner := h.acquired(1, onlyOne, first, 0, 0)
	called := h.now()
	strike(h, h.struck, first.ticketID)
	successor := h.acquired(2, onlyOne, &brokenHold{ticketID: ticketID{"second", 2}}, 0, called)
	require.True(t, owner.look())
	first.over = true
	owner.lost()
	successor.released(true)
	require.Empty(t, h.violations(), fmt.Sprint(h.steps))
	require.Equal(t, porcupine.Ok, h.explained(time.Minute))
}
