// Oversell sells 200 units through six processes, in three ways.
//
//	go run ./examples/oversell
//
// Each process checks that there is enough in stock, has a payment service authorise the money, which takes
// 15 ms, and writes what is left. Without a lock they sell the same units many times over. With a Mutex
// they do not, but all customers wait in one queue. With the stock split into ten segments,
// each with its own lock (Striped), they pay side by side. Still exactly 200 are sold, even
// if the last ones are scattered over many segments.
//
// The parts to copy are in shop.go and striped.go; the latter is worth a second look. audit.go is
// the proof: it reads the records of all sales. The program exits with 0 only if every locked way has
// sold 200, and has refused only customers that asked for more than was left.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/session"
)

const (
	units       = 200
	segments    = 10
	processes   = 6
	mostWanted  = 5 // units in an order; the least is 1
	paymentTime = 15 * time.Millisecond
)

var program = stage.Program{
	Name:  "oversell",
	Story: story,
	Roles: map[string]stage.Act{"seller": seller},
}

func main() { program.Main() }

// way is one way to sell.
type way struct {
	name     string
	locked   bool
	segments int
	open     func(stock, *session.Keeper, etcdlock.Option) Shop
}

var ways = []way{
	{"no lock", false, 1, func(s stock, _ *session.Keeper, _ etcdlock.Option) Shop {
		return UnguardedShop{s}
	}},
	{"Mutex", true, 1, func(s stock, sessions *session.Keeper, locks etcdlock.Option) Shop {
		return LockedShop{s, etcdlock.NewMutex(sessions, "stock", locks)}
	}},
	{"Striped", true, segments, func(s stock, sessions *session.Keeper, locks etcdlock.Option) Shop {
		return StripedShop{s, sessions, etcdlock.NewStriped(sessions, "stock", segments, locks)}
	}},
}

func story(ctx context.Context, e *stage.Etcd) error {
	var sellers []*stage.Process
	for i := range processes {
		name := fmt.Sprintf("seller-%d", i+1)
		p, err := e.Start(ctx, name, "seller", name)
		if err != nil {
			return err
		}
		defer p.Leave()
		sellers = append(sellers, p)
	}
	e.Printf("%d units, %d processes that sell 1 to %d at a time, %v for each payment\n\n",
		units, processes, mostWanted, paymentTime)
	e.Printf("%-8s %7s %7s %9s %12s %9s %9s\n", "", "orders", "units", "oversold", "refused", "time", "orders/s")
	for _, w := range ways {
		s := stock{client: e.Client, prefix: e.Prefix + w.name + "/"}
		for i := range w.segments {
			if _, err := e.Client.Do(ctx, s.put(i, units/w.segments)); err != nil {
				return err
			}
		}
		if err := e.Meet(ctx, w.name+"/open", processes+1); err != nil {
			return err
		}
		began := time.Now()
		var refused []TooFewError
		for _, p := range sellers {
			line, ok := <-p.Lines
			if !ok {
				return errors.Join(errors.New(p.Name+" has left early"), p.Wait())
			}
			var its []TooFewError
			if err := json.Unmarshal([]byte(line), &its); err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
			refused = append(refused, its...)
		}
		took := time.Since(began).Seconds()
		sold, err := audit(ctx, s)
		if err != nil {
			return err
		}
		orders := len(sold) + len(refused)
		e.Printf("%-8s %7d %7d %9d %5d (%2.0f %%) %7.2f s %9.0f\n", w.name, orders, sold.units(), sold.units()-units,
			len(refused), 100*float64(len(refused))/float64(orders), took, float64(len(sold))/took)
		if err := sold.judge(w, refused); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	e.Printf(`
Refused are orders for more than is left; they pile up while the last payments are under way. orders/s are sold.
A lock keeps the stock right. To be fast as well, split what is locked: any segment serves a customer, several
together serve one for whom none has enough, and the last unit is sold wherever it is.
`)
	return nil
}

// seller is what the processes do. It reports the orders that it has refused, a line for each way. What it
// has sold is in etcd.
func seller(ctx context.Context, e *stage.Etcd) error {
	var name string
	if err := e.Job(&name); err != nil {
		return err
	}
	sessions := session.Keep(e.Client)
	defer sessions.Close(ctx)
	if _, err := sessions.Session(ctx); err != nil { // now, not in the time that is measured
		return err
	}
	for _, w := range ways {
		s := stock{client: e.Client, prefix: e.Prefix + w.name + "/", authorise: paymentService(e, w)}
		shop := w.open(s, sessions, etcdlock.WithNamespace(s.prefix+"locks"))
		if err := e.Meet(ctx, w.name+"/open", processes+1); err != nil {
			return err
		}
		refused, err := sellOut(ctx, shop, name)
		if err != nil {
			return err
		}
		line, err := json.Marshal(refused)
		if err != nil {
			return err
		}
		e.Printf("%s\n", line)
	}
	return nil
}

// sellOut serves customers until nothing is left.
func sellOut(ctx context.Context, shop Shop, name string) (refused []TooFewError, err error) {
	for customer := 1; ; customer++ {
		order := Order{ID: fmt.Sprintf("%s-%d", name, customer), Units: 1 + rand.N(mostWanted)}
		err := shop.Sell(ctx, order)
		for ctx.Err() == nil && (errors.Is(err, etcdlock.ErrLost) || errors.Is(err, etcdlock.ErrOutcomeUnknown)) {
			err = shop.Sell(ctx, order)
		}
		var tooFew *TooFewError
		switch {
		case err == nil:
		case !errors.As(err, &tooFew):
			return nil, err
		case tooFew.Left == 0:
			return refused, nil
		default:
			refused = append(refused, *tooFew)
		}
	}
}

// paymentService takes its time. Without a lock it lets all processes read the stock before the first one
// goes on, so that the outcome does not depend on luck.
func paymentService(e *stage.Etcd, w way) func(context.Context, Order) error {
	var first sync.Once
	return func(ctx context.Context, _ Order) (err error) {
		if !w.locked {
			first.Do(func() { err = e.Meet(ctx, w.name+"/looked", processes) })
		}
		if err != nil {
			return err
		}
		select {
		case <-time.After(paymentTime):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
