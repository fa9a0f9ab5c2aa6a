package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// target is a peer on a server.
type target struct {
	peer   Peer
	server Server
}

func (t target) String() string { return t.peer.Name + " on " + t.server.Name() }

// cell is one measurement: one workload on one target, once. It has clients and names of
// its own, so that nothing that an earlier one left behind is in its way.
type cell struct {
	target
	options options
	name    string // of the lock; unique to the cell
	param   int    // the workload's number, of contenders for example

	mu       sync.Mutex
	clients  []Client
	sessions []Session
}

// maxClients bounds the processes that contenders stand for, as the machine is one.
const maxClients = 16

// connect makes a client that is closed with the cell.
func (c *cell) connect(ctx context.Context, faulty bool) (Client, error) {
	client, err := c.peer.Connect(ctx, c.server, faulty)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients = append(c.clients, client)
	return client, nil
}

// session makes a session that is closed with the cell.
func (c *cell) session(ctx context.Context, client Client, ttl time.Duration) (Session, error) {
	s, err := client.Session(ctx, ttl)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions = append(c.sessions, s)
	return s, nil
}

// processes returns lockers of the cell's name for n goroutines that are spread over as
// many clients, with one session for each client and one locker for all its goroutines, if
// the peer can do that. With apart, every goroutine has a session of its own.
func (c *cell) processes(ctx context.Context, clients, n int, apart bool) ([]Locker, error) {
	all := make([]Locker, n)
	err := parallel(ctx, clients, clients, func(ctx context.Context, i int) error {
		client, err := c.connect(ctx, false)
		if err != nil {
			return err
		}
		mine := (n - i + clients - 1) / clients // of i, i+clients, i+2*clients and so on
		if !apart && !c.peer.SoloSession {
			s, err := c.session(ctx, client, 0)
			if err != nil {
				return err
			}
			shared := s.Locker(c.name)
			for j := range mine {
				all[i+j*clients] = shared
			}
			return nil
		}
		return parallel(ctx, mine, 8, func(ctx context.Context, j int) error {
			s, err := c.session(ctx, client, 0)
			if err == nil {
				all[i+j*clients] = s.Locker(c.name)
			}
			return err
		})
	})
	return all, err
}

// close closes the sessions and then the clients, but waits for the first no longer than
// needs be.
func (c *cell) close() {
	c.mu.Lock()
	sessions, clients := slices.Clone(c.sessions), slices.Clone(c.clients)
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = parallel(ctx, len(sessions), 64, func(ctx context.Context, i int) error {
			sessions[i].Close(ctx)
			return nil
		})
	}()
	select {
	case <-closed:
	case <-ctx.Done():
	}
	c.cut(clients)
}

// cut closes the clients, which also ends calls that know no context.
func (*cell) cut(clients []Client) {
	var closing sync.WaitGroup
	for _, client := range clients {
		closing.Go(client.Close)
	}
	closing.Wait()
}

// parallel calls f with 0 to n-1, some at a time, and returns the first error.
func parallel(ctx context.Context, n, atATime int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var working sync.WaitGroup
	slots := make(chan struct{}, atATime)
	for i := range n {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		working.Go(func() {
			defer func() { <-slots }()
			if err := f(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	working.Wait()
	if ctx.Err() != nil {
		return fmt.Errorf("%w", context.Cause(ctx))
	}
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// unknown is a figure that a peer does not report.
var unknown = math.NaN()
