//go:build unix

package main

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

const (
	idleTTL    = 6 // seconds
	idleWindow = idleTTL * time.Second
	idleRounds = 3
)

// BenchmarkIdleSessions compares the processor time of idle sessions with that of as many sessions of etcd's package
// concurrency, by turns, on one cluster with a password. It is that of client and server together, less that of the
// cluster without sessions.
//
//	go -C bench test -run '^$' -bench IdleSessions -benchtime 1x -timeout 10m
func BenchmarkIdleSessions(b *testing.B) {
	for clients, sizes := range map[string][]int{"one client each": {20, 200}, "one client": {20, 200, 2000}} {
		for _, n := range sizes {
			b.Run(fmt.Sprintf("%d sessions, %s", n, clients), func(b *testing.B) {
				c := embedtest.Start(b, embedtest.WithAuth("secret"))
				shared := c.Client(b)
				client := func() *clientv3.Client {
					if clients == "one client" {
						return shared
					}
					return c.Client(b)
				}
				clientsOf := make([]*clientv3.Client, n)
				for i := range clientsOf {
					clientsOf[i] = client()
				}
				for range b.N {
					var without, ours, theirs time.Duration
					for range idleRounds {
						without += idleTime(b, clientsOf, func(*testing.B, *clientv3.Client) func() { return func() {} })
						theirs += idleTime(b, clientsOf, sessionOfEtcd)
						ours += idleTime(b, clientsOf, sessionOfOurs)
					}
					renewals := float64(n * idleRounds * int(idleWindow/time.Second) / (idleTTL / 3))
					b.ReportMetric(float64(ours-without)/float64(theirs-without), "ours/etcd's")
					b.ReportMetric(float64(ours)/float64(theirs), "ours/etcd's-with-cluster")
					b.ReportMetric(float64(ours-without)/1e3/renewals, "µs/renewal")
					b.ReportMetric(float64(theirs-without)/1e3/renewals, "µs/renewal-etcd")
					b.ReportMetric(float64(without)/1e6, "ms-without")
				}
			})
		}
	}
}

// idleTime is the processor time of a window in which there is a session on each client.
func idleTime(b *testing.B, clients []*clientv3.Client, open func(*testing.B, *clientv3.Client) (end func())) time.Duration {
	var ends []func()
	for _, c := range clients {
		ends = append(ends, open(b, c))
	}
	time.Sleep(idleWindow) // the first renewals are over
	runtime.GC()
	before := processorTime(b)
	time.Sleep(idleWindow)
	took := processorTime(b) - before
	for _, end := range ends {
		end()
	}
	return took
}

func sessionOfEtcd(b *testing.B, c *clientv3.Client) func() {
	s, err := concurrency.NewSession(c, concurrency.WithTTL(idleTTL))
	require.NoError(b, err)
	return func() { require.NoError(b, s.Close()) }
}

func sessionOfOurs(b *testing.B, c *clientv3.Client) func() {
	s, err := session.New(b.Context(), c, session.WithTTL(idleTTL*time.Second))
	require.NoError(b, err)
	return func() { require.NoError(b, s.Close(context.Background())) }
}
