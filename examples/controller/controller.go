package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const (
	reconcileEvery = 50 * time.Millisecond
	healthEvery    = time.Second // and so long a check may take
	orderTimeout   = 10 * time.Second
)

// controller is one replica of a service that makes a fleet as large as it should be. All
// replicas stand for election, and the one that is elected does the work.
type controller struct {
	options  options
	client   *clientv3.Client
	election *etcdlock.Election
	say      func(format string, args ...any)

	mu     sync.Mutex      // guards leader
	leader etcdlock.Leader // as last observed
}

// fleet is what a leader writes: how large it is now, and who made it so.
type fleet struct {
	Size  int
	By    string
	Token etcdlock.Token
}

func newController(client *clientv3.Client, sessions session.Source, o options, say func(string, ...any)) *controller {
	c := &controller{options: o, client: client, say: say}
	c.election = newElection(sessions, o.Prefix, etcdlock.WithHealthCheck(healthEvery, c.healthy))
	return c
}

func newElection(sessions session.Source, prefix string, opts ...etcdlock.Option) *etcdlock.Election {
	return etcdlock.NewElection(sessions, "controller", append(opts, etcdlock.WithNamespace(prefix+"locks"))...)
}

// run returns when ctx ends, after the leader, if that is this one, has stopped and resigned.
func (c *controller) run(ctx context.Context) error {
	observing, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { c.observe(observing) })
	defer group.Wait()
	defer stop()
	err := c.election.Run(ctx, c.options.Name, c.lead)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// lead is called when this replica has been elected, and returns when ctx has ended: by loss,
// by the health check, or because the process is to stop. Only then it resigns.
func (c *controller) lead(ctx context.Context, term *etcdlock.Term) error {
	c.say("%s leads, with token %d", c.options.Name, term.Token())
	ticker := time.NewTicker(reconcileEvery)
	defer ticker.Stop()
	for {
		err := c.reconcile(ctx, term)
		switch {
		case errors.Is(err, etcdlock.ErrLost):
			c.say("%s is refused: %v", c.options.Name, err)
			return nil // Run stands for election again
		case ctx.Err() != nil:
			c.say("%s stops leading: %v", c.options.Name, context.Cause(ctx))
			return nil
		case err != nil: // also etcdlock.ErrOutcomeUnknown: the next look shows what has taken effect
			c.say("%s will try again: %v", c.options.Name, err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// reconcile makes one step from what is to what should be.
func (c *controller) reconcile(ctx context.Context, term *etcdlock.Term) error {
	desired, actual, err := readFleet(ctx, c.client, c.options.Prefix)
	if err != nil || desired == actual.Size {
		return err
	}
	next := fleet{Size: actual.Size + 1, By: c.options.Name, Token: term.Token()}
	if desired < actual.Size {
		next.Size = actual.Size - 1
	}
	if err := c.order(ctx, next); err != nil {
		return err
	}
	value, err := json.Marshal(next)
	if err != nil {
		return err
	}
	// It may have taken any time to get here. If another replica leads by now, it has gone on from what
	// it found, and this write must not undo its work.
	_, err = term.Txn(ctx).Then(clientv3.OpPut(c.options.Prefix+"actual", string(value))).Commit()
	return err
}

// order has the cloud change the size. It waits for the outcome even if the term ends meanwhile: an
// order with an unknown outcome is worse than a late one.
func (c *controller) order(ctx context.Context, next fleet) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), orderTimeout)
	defer cancel()
	return c.ask(ctx, http.MethodPost, "/fleet?size="+strconv.Itoa(next.Size))
}

// healthy reports whether this replica could do the work.
func (c *controller) healthy(ctx context.Context) error { return c.ask(ctx, http.MethodGet, "/health") }

func (c *controller) ask(ctx context.Context, method, path string) error {
	if c.options.Cloud == "" {
		return nil
	}
	request, err := http.NewRequestWithContext(ctx, method, c.options.Cloud+path, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the cloud answers %s", answer.Status)
	}
	return nil
}

func readFleet(ctx context.Context, client *clientv3.Client, prefix string) (desired int, actual fleet, err error) {
	answer, err := client.Txn(ctx).Then(clientv3.OpGet(prefix+"desired"), clientv3.OpGet(prefix+"actual")).Commit()
	if err != nil {
		return 0, fleet{}, err
	}
	for _, kv := range answer.Responses[0].GetResponseRange().Kvs {
		if desired, err = strconv.Atoi(string(kv.Value)); err != nil {
			return 0, fleet{}, err
		}
	}
	for _, kv := range answer.Responses[1].GetResponseRange().Kvs {
		if err := json.Unmarshal(kv.Value, &actual); err != nil {
			return 0, fleet{}, err
		}
	}
	return desired, actual, nil
}
