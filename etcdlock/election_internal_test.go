package etcdlock

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// A Keeper ends a session that it has replaced when no caller uses it any more. The last one may be a candidate that is
// passed over, or whose key is removed.
func TestACandidateWhoseTicketIsGoneWithItsSessionJoinsOnTheNextOne(t *testing.T) {
	cluster := embedtest.Start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := cluster.Client(t)
	first, err := session.New(ctx, client)
	require.NoError(t, err)
	sessions := session.Keep(client)
	defer func() { require.NoError(t, sessions.Close(context.Background())) }()

	leader, err := NewElection(sessions, "a").Campaign(ctx, "leader")
	require.NoError(t, err)
	ticket, err := fairqueue.JoinN(ctx, first, 1, fairqueue.Place{Queue: NewElection(first, "a").queue, Mode: fairqueue.Candidate, Value: "me"})
	require.NoError(t, err)
	_, err = client.Delete(ctx, ticket.Key())
	require.NoError(t, err)
	require.NoError(t, leader.Resign(ctx))
	require.ErrorIs(t, ticket.Wait(ctx), fairqueue.ErrGone)
	require.NoError(t, first.Close(ctx))

	c := &candidacy{ticketClaim: ticketClaim{Ticket: ticket}, election: NewElection(sessions, "a"), value: "me"}
	require.NoError(t, c.Wait(ctx)) // the first thing that it learns is that the ticket is gone
	require.NoError(t, c.Leave(ctx))
}
