package waits_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/cmd/etcdlock/internal/waits"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/fairqueue"
)

// place is a holder or a waiter with that token, whose key is made of it. A session has a lease.
func place(token int, holding bool, kind string, session int, within ...int) etcdlock.Place {
	var lines []string
	for _, w := range within {
		lines = append(lines, fmt.Sprintf("%d key%d", w, w))
	}
	return etcdlock.Place{
		Key: fmt.Sprintf("key%d", token), Token: etcdlock.Token(token), Holding: holding, Kind: kind, Weight: 1,
		Lease: clientv3.LeaseID(session), Owner: fairqueue.Owner{Within: strings.Join(lines, "\n")},
	}
}

// upgrade is the place in line of an upgradeable hold.
func upgrade(token, session int, within ...int) etcdlock.Place {
	p := place(token, false, "exclusive", session, within...)
	p.Owner.Mark = "upgrade"
	return p
}

func queue(name string, places ...etcdlock.Place) etcdlock.Queue {
	return etcdlock.Queue{Name: name, Places: places, Size: 2}
}

// shown is a circle as the tokens of its nodes.
func shown(cycles []waits.Cycle) (all []string) {
	for _, c := range cycles {
		text := map[bool]string{true: "", false: "perhaps "}[c.Certain]
		for _, n := range c.Nodes {
			text += fmt.Sprintf("%s%d ", n.Name, n.Place.Token)
		}
		all = append(all, strings.TrimSpace(text))
	}
	return all
}

func TestCyclesAreTheDeadlocks(t *testing.T) {
	const x, s, u, p = "exclusive", "shared", "upgradeable", "permit"
	choice := place(4, false, x, 2, 2)
	choice.Owner.Choice = true
	for name, c := range map[string]struct {
		queues []etcdlock.Queue
		want   []string
	}{
		"nothing": {},
		"two locks in two orders": {[]etcdlock.Queue{
			queue("a", place(1, true, x, 1), place(4, false, x, 2, 2)), queue("b", place(2, true, x, 2), place(3, false, x, 1, 1)),
		}, []string{"a1 b3 b2 a4"}},
		"in one order": {[]etcdlock.Queue{
			queue("a", place(1, true, x, 1), place(4, false, x, 2)), queue("b", place(2, true, x, 1, 1), place(3, false, x, 3)),
		}, nil},
		"under no hold of the lock that the other wants": {[]etcdlock.Queue{
			queue("a", place(1, true, x, 1), place(4, false, x, 2, 2)), queue("b", place(2, true, x, 2), place(3, false, x, 1, 9)),
		}, nil},
		"contexts were not passed on": {[]etcdlock.Queue{
			queue("a", place(1, true, x, 1), place(4, false, x, 2)), queue("b", place(2, true, x, 2), place(3, false, x, 1)),
		}, []string{"perhaps a1 b3 b2 a4"}},
		"a hold that has ended": {[]etcdlock.Queue{
			queue("a", place(5, true, x, 1), place(6, false, x, 2, 2)), queue("b", place(2, true, x, 2), place(3, false, x, 1, 1)),
		}, nil},
		"behind one that waits": {[]etcdlock.Queue{
			queue("a", place(1, true, x, 1), place(4, false, x, 3), place(5, false, x, 2, 2)), queue("b", place(2, true, x, 2), place(3, false, x, 1, 1)),
		}, []string{"a1 b3 b2 a5 a4"}},
		"readers share": {[]etcdlock.Queue{
			queue("a", place(1, true, s, 1), place(4, true, s, 2, 2)), queue("b", place(2, true, x, 2), place(3, false, x, 1, 1)),
		}, nil},
		"a reader behind a writer that waits for readers": {[]etcdlock.Queue{
			queue("a", place(1, true, s, 1), place(4, false, x, 3), place(5, false, s, 2, 2)), queue("b", place(2, true, x, 2), place(3, false, x, 1, 1)),
		}, []string{"a1 b3 b2 a5 a4"}},
		"a writer waits for all readers": {[]etcdlock.Queue{
			queue("a", place(1, true, s, 1), place(4, true, s, 3), place(5, false, x, 2, 2)), queue("b", place(2, true, x, 2), place(6, false, x, 1, 1)),
		}, []string{"a1 b6 b2 a5"}},
		"an upgrade waits for a reader": {[]etcdlock.Queue{
			queue("a", place(1, true, s, 1), place(4, true, u, 2), upgrade(5, 2, 4)), queue("b", place(2, true, x, 2), place(3, false, x, 1, 1), place(6, false, x, 3)),
		}, nil},
		"an upgrade and the reader that it waits for": {[]etcdlock.Queue{
			queue("a", place(1, true, s, 1), place(4, true, u, 2, 2), upgrade(5, 2, 4, 2)), queue("b", place(2, true, x, 2), place(3, false, x, 1, 1)),
		}, []string{"a1 b3 b2 a5"}},
		"an upgrade beside waiters": {[]etcdlock.Queue{
			queue("a", place(1, true, u, 2), place(4, false, x, 3), place(5, false, s, 1, 2), upgrade(6, 2, 1)), queue("b", place(2, true, x, 1)),
		}, nil},
		"a reader behind an upgrade": {[]etcdlock.Queue{
			queue("a", place(1, true, s, 1), place(4, true, u, 2), upgrade(5, 2, 4), place(6, false, s, 1, 1)),
		}, []string{"a1 a6 a5"}},
		"a reader behind an upgradeable one": {[]etcdlock.Queue{
			queue("a", place(1, true, u, 1), place(4, false, u, 3), place(5, true, s, 2, 2)), queue("b", place(2, true, x, 2), place(3, false, x, 1, 1)),
		}, nil},
		"a writer behind a reader and an upgradeable one": {[]etcdlock.Queue{
			queue("a", place(1, true, s, 1), place(4, true, u, 3), place(5, false, x, 2, 2)), queue("b", place(2, true, x, 2), place(6, false, x, 1, 1)),
		}, []string{"a1 b6 b2 a5"}},
		"one permit of two": {[]etcdlock.Queue{
			queue("a", place(1, true, p, 1), place(4, true, p, 3), place(5, false, p, 2, 2)), queue("b", place(2, true, x, 2), place(6, false, x, 1, 1)),
		}, []string{"perhaps a1 b6 b2 a5"}},
		"any of several queues": {[]etcdlock.Queue{
			queue("a", place(1, true, x, 1), choice), queue("b", place(2, true, x, 2), place(3, false, x, 1, 1)),
		}, []string{"perhaps a1 b3 b2 a4"}},
		"a lock under itself": {[]etcdlock.Queue{queue("a", place(1, true, x, 1), place(2, false, x, 1, 1))}, []string{"a1 a2"}},
		"two circles": {[]etcdlock.Queue{
			queue("a", place(1, true, x, 1), place(2, false, x, 1, 1)), queue("b", place(3, true, x, 2), place(4, false, x, 2, 3)),
		}, []string{"a1 a2", "b3 b4"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := waits.New(c.queues)
			cycles := g.Cycles()
			require.ElementsMatch(t, c.want, shown(cycles))
			for _, cycle := range cycles {
				require.True(t, g.Has(cycle))
				require.False(t, waits.New(nil).Has(cycle))
			}
		})
	}
}

// A second look that finds another holder of a key is none of the same deadlock.
func TestACircleWithAnotherHolderIsAnotherCircle(t *testing.T) {
	first := waits.New([]etcdlock.Queue{queue("a", place(1, true, "exclusive", 1), place(2, false, "exclusive", 1, 1))})
	later := place(7, true, "exclusive", 1)
	later.Key = "key1"
	second := waits.New([]etcdlock.Queue{queue("a", later, place(2, false, "exclusive", 1, 7))})
	require.False(t, second.Has(first.Cycles()[0]))
}

// Processes that take several locks in one order can not be in a circle, whatever the state that is seen.
func TestLocksThatAreTakenInOneOrderAreNoDeadlock(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		const locks = 6
		queues := make([]etcdlock.Queue, locks)
		for i := range queues {
			queues[i] = queue(string(rune('a' + i)))
		}
		token := 0
		for process := 1; process <= 20; process++ {
			var held []int
			for i := range queues {
				if random.IntN(2) == 0 {
					continue
				}
				token++
				holding := len(queues[i].Places) == 0
				queues[i].Places = append(queues[i].Places, place(token, holding, "exclusive", process, held...))
				if !holding {
					break
				}
				held = append(held, token)
			}
		}
		require.Empty(t, shown(waits.New(queues).Cycles()), seed)
	}
}

// A chain of a hundred thousand waits needs no more stack or time than it has.
func TestManyWaitsAreNoTrouble(t *testing.T) {
	const n = 100_000
	places := []etcdlock.Place{place(1, true, "exclusive", 1)}
	for i := 2; i <= n; i++ {
		places = append(places, place(i, false, "exclusive", i))
	}
	g := waits.New([]etcdlock.Queue{queue("a", places...)})
	require.Empty(t, g.Cycles())
	require.Len(t, g.Edges(), n-1)
}

// It waits for the writer only.
func TestAReaderDoesNotWaitForAnUpgradeableOne(t *testing.T) {
	g := waits.New([]etcdlock.Queue{queue("a", place(1, true, "exclusive", 1), place(2, false, "upgradeable", 2), place(3, false, "shared", 3))})
	require.Len(t, g.Edges(), 2)
}
