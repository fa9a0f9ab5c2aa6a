package fairqueue_test

import (
	"context"
	"fmt"
	"iter"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/fairqueue"
	holdsof "github.com/etcdlock/locks/internal/within"
)

const (
	largestValue = 1 << 20
	longestLabel = 512
)

func TestAValueAboveTheLimitIsRefusedBeforeAnythingIsSent(t *testing.T) {
	c, client := begin(t)
	s := open(t, client)
	tooLarge := strings.Repeat("v", largestValue+1)
	ticket := joinCandidate(t, s, "small", 0)
	ctx, before := within(t, patience), c.Calls("Txn")
	for name, err := range map[string]error{
		"join": errorOf(fairqueue.JoinN(ctx, s, 1, candidate(s, tooLarge, 0))),
		"set":  ticket.Set(ctx, tooLarge),
	} {
		require.ErrorIs(t, err, fairqueue.ErrTooLarge, name)
		require.ErrorContains(t, err, "a value of 1048577 bytes, at most 1048576 are allowed", name)
	}
	require.Equal(t, before, c.Calls("Txn"))
	require.Equal(t, []string{ticket.Key()}, keysUnder(t, client, "q"))
	require.NoError(t, ticket.Set(ctx, "still there"))
}

func TestTheLargestValueFitsIntoARequest(t *testing.T) {
	_, client := begin(t)
	s := open(t, client)
	first, second := strings.Repeat("v", largestValue), strings.Repeat("w", largestValue)
	ticket := joinCandidate(t, s, first, 0)
	require.NoError(t, ticket.Wait(within(t, patience)))
	require.NoError(t, ticket.Set(within(t, patience), second))
	require.Equal(t, second, string(entriesOf(t, queueAt(s, "q"))[0].Value))
}

func TestALabelAboveTheLimitIsRefusedByEveryJoin(t *testing.T) {
	c, client := begin(t)
	s := open(t, client)
	q := fairqueue.New(s, "q", fairqueue.Options{Label: strings.Repeat("l", longestLabel+1)})
	places := []fairqueue.Place{{Queue: queueAt(s, "p"), Mode: fairqueue.Exclusive}, {Queue: q, Mode: fairqueue.Exclusive}}

	ctx, before := within(t, patience), c.AppliedIndex()
	for name, err := range map[string]error{
		"join":        ways["join shared"].join(ctx, q),
		"try":         ways["try"].join(ctx, q),
		"joins":       errorOf(fairqueue.JoinN(ctx, s, 2, places...)),
		"any":         errorOf(fairqueue.JoinN(ctx, s, 1, places...)),
		"tries":       errorOf(fairqueue.TryN(ctx, s, 1, places...)),
		"permits":     errorOf(q.JoinPermits(ctx, 1, 2)),
		"try permits": errorOf(q.TryPermits(ctx, 1, 2)),
	} {
		require.ErrorIs(t, err, fairqueue.ErrTooLarge, name)
		require.ErrorContains(t, err, "a label of 513 bytes, at most 512 are allowed", name)
	}
	require.Equal(t, before, c.AppliedIndex())
}

// holds are what the context of a call comes from.
type holds []string

func (hs holds) Live(*clientv3.Client) iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for _, key := range hs {
			if !yield(key, math.MaxInt64) {
				return
			}
		}
	}
}

// Names of etcdlock are at most 512 bytes, which escaping makes three times as long, in a namespace of as many.
func TestTheLargestGroupFitsIntoARequest(t *testing.T) {
	_, client := begin(t)
	s := open(t, client)
	var outer holds
	for range 8 { // the longest, and some of a usual length, with six bytes of JSON for each
		outer = append(outer, strings.Repeat("\x01", 2000), strings.Repeat("\x01", 40))
	}
	ctx := context.WithValue(within(t, patience), holdsof.Key{}, outer)
	label := strings.Repeat("\x01", longestLabel) // six bytes of JSON each
	all := make([]fairqueue.Place, 127)
	for i := range all {
		prefix := strings.Repeat("n", 512) + "/" + strings.Repeat("%2F", 511) + fmt.Sprintf("%03d", i)
		all[i] = fairqueue.Place{Queue: fairqueue.New(s, prefix, fairqueue.Options{Label: label}), Mode: fairqueue.Exclusive}
	}
	for name, join := range map[string]func() (*fairqueue.Ticket, error){
		"join": func() (*fairqueue.Ticket, error) { return fairqueue.JoinN(ctx, s, len(all), all...) },
		"try":  func() (*fairqueue.Ticket, error) { return fairqueue.TryN(ctx, s, len(all), all...) },
	} {
		g, err := join()
		require.NoError(t, err, name)
		require.NoError(t, g.Wait(within(t, patience)), name)
		require.NoError(t, g.ReleaseAfter(within(t, patience), 1), name)
		eventually(t, "no key is left", func() bool {
			answer, err := client.Get(within(t, patience), "nnn", clientv3.WithPrefix(), clientv3.WithCountOnly())
			return err == nil && answer.Count == 0
		})
	}
}
