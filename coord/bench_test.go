package coord_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/coord"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

// crowd is a group with n members, and the first of them.
func crowd(b *testing.B, n int) (*embedtest.Cluster, *session.Keeper, *coord.Group, *coord.Member) {
	b.Helper()
	cluster := embedtest.Start(b)
	sessions := keep(b, cluster.Client(b))
	g := coord.NewGroup(sessions, "workers")
	members := make([]*coord.Member, n)
	var joining sync.WaitGroup
	for i := range members {
		joining.Go(func() {
			var err error
			members[i], err = g.Join(context.Background(), fmt.Sprint("host-", i), "10.0.0.1:8080")
			require.NoError(b, err)
		})
	}
	joining.Wait()
	return cluster, sessions, g, members[0]
}

var sizes = []int{1, 100, 1000}

// A member joins and leaves again, among others.
func BenchmarkJoin(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			_, _, g, _ := crowd(b, n)
			for b.Loop() {
				m, err := g.Join(b.Context(), "another", "10.0.0.2:8080")
				require.NoError(b, err)
				require.NoError(b, m.Leave(b.Context()))
			}
		})
	}
}

// A member sets its value, and an observer yields it.
func BenchmarkObserve(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			_, _, g, m := crowd(b, n)
			i := 0
			for peers, err := range g.Observe(b.Context()) {
				require.NoError(b, err)
				if i > 0 && peers[0].Value != fmt.Sprint(i) && peers[0].Value != "10.0.0.1:8080" {
					continue
				}
				if !b.Loop() {
					break
				}
				i++
				require.NoError(b, m.Set(b.Context(), fmt.Sprint(i)))
			}
		})
	}
}

// All members are read.
func BenchmarkMembers(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			_, _, g, _ := crowd(b, n)
			for b.Loop() {
				peers, err := g.Members(b.Context())
				require.NoError(b, err)
				require.Len(b, peers, n)
			}
		})
	}
}
