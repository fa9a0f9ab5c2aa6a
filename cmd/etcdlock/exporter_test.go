package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/fairqueue"
)

func TestAgeIsThatOfTheFirstInLine(t *testing.T) {
	start := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	after := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	q := newQueues([]string{"orders", "leader"})
	age := func(label string, seconds int) time.Duration {
		all, _ := q.read(after(seconds))
		return all[label].age
	}
	lock := func(name string, token etcdlock.Token, since time.Time) etcdlock.Queue {
		place := etcdlock.Place{Token: token, Holding: true, Owner: fairqueue.Owner{Since: since}}
		return etcdlock.Queue{Name: name, Prefix: name + "/", Places: []etcdlock.Place{place}, Holding: 1}
	}
	all, up := q.read(start)
	require.Empty(t, all, "nothing has been read")
	require.Zero(t, up)

	q.put(lock("orders", 1, after(-30)), true, start)
	all, _ = q.read(start)
	require.Empty(t, all, "there may be others")
	q.know()
	require.Equal(t, 40*time.Second, age("orders", 10))
	q.put(lock("orders", 2, after(9)), true, after(12))
	require.Equal(t, 3*time.Second, age("orders", 12))
	q.put(lock("orders", 3, after(60)), true, after(13))
	require.Zero(t, age("orders", 13), "that machine's clock is ahead")

	q.put(lock("leader", 4, time.Time{}), true, after(10))
	q.put(lock("leader", 4, time.Time{}), true, after(15)) // another candidate has joined
	require.Equal(t, 10*time.Second, age("leader", 20))
	q.put(lock("leader", 5, time.Time{}), true, after(25))
	require.Equal(t, 5*time.Second, age("leader", 30))

	q.put(lock("customer 1", 6, after(0)), true, after(1))
	q.put(lock("customer 2", 7, after(5)), true, after(6))
	require.Equal(t, 30*time.Second, age("other", 30), "the greatest")
	q.put(lock("customer 1", 6, after(0)), false, after(30))
	require.Equal(t, 25*time.Second, age("other", 30))
	q.put(etcdlock.Queue{Name: "customer 2", Prefix: "customer 2/"}, true, after(31))
	require.Zero(t, age("other", 40))
	require.Len(t, q.by, 2, "what is gone takes no memory")
}
