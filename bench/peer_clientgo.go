package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/leaderelection"
)

func clientgoPeer() Peer {
	return Peer{
		Name: "client-go", Kind: Election, Backend: Memory,
		About: "leader election with ReleaseOnCancel on a record in memory: no API server's latency is in it; " +
			"lease 15 s, renew deadline 10 s, retry 2 s (its defaults), in that proportion where a TTL is given; " +
			"requests time out as those of NewFromKubeconfig do",
		Connect: func(_ context.Context, s Server, _ bool) (Client, error) {
			return &clientgoClient{server: s.(*memoryServer)}, nil
		},
	}
}

type clientgoClient struct {
	server     *memoryServer
	cut        atomic.Bool
	identities atomic.Int64
}

func (c *clientgoClient) Session(_ context.Context, ttl time.Duration) (Session, error) {
	if ttl == 0 {
		ttl = 15 * time.Second
	}
	return clientgoSession{c, ttl}, nil
}

func (c *clientgoClient) Blackhole() { c.cut.Store(true) }

func (c *clientgoClient) Close() {}

type clientgoSession struct {
	client *clientgoClient
	ttl    time.Duration
}

func (s clientgoSession) Locker(name string) Locker { return clientgoCandidate{s, name} }

func (clientgoSession) Close(context.Context) {}

type clientgoCandidate struct {
	session clientgoSession
	name    string
}

// Lock runs an elector until it leads. Unlock ends it, which releases the record.
func (c clientgoCandidate) Lock(ctx context.Context) (Hold, error) {
	client, ttl := c.session.client, c.session.ttl
	leads := make(chan context.Context, 1)
	deadline := ttl * 10 / 15
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &recordLock{
			record:   client.server.record(c.name),
			identity: fmt.Sprintf("%p-%d", client, client.identities.Add(1)),
			timeout:  max(time.Second, deadline/2),
			cut:      &client.cut,
		},
		LeaseDuration:   ttl,
		RenewDeadline:   deadline,
		RetryPeriod:     ttl * 2 / 15,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { leads <- ctx },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return Hold{}, fmt.Errorf("create an elector: %w", err)
	}
	running, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(running)
	}()
	end := func(ctx context.Context) error {
		stop()
		select {
		case <-ended:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("stop the elector: %w", ctx.Err())
		}
	}
	select {
	case leading := <-leads:
		return Hold{Unlock: end, Lost: leading.Done()}, nil
	case <-ctx.Done():
		stop()
		return Hold{}, fmt.Errorf("campaign: %w", ctx.Err())
	}
}

func (clientgoCandidate) TryLock(context.Context) (Hold, error) { return Hold{}, errNoTry }
