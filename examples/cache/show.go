package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/session"
)

const (
	oldPrice = 100
	newPrice = 90
	later    = 100 // reads, to see whether it gets better by itself
)

// show changes a price just when a reader has read it from the database and has not yet put it into the
// cache. The reader goes on when the change is done, or when the change waits for the reader.
func show(ctx context.Context, e *stage.Etcd, w way, sessions *session.Keeper) error {
	hasRead, goOn := make(chan struct{}), make(chan struct{})
	letReaderGoOn := sync.OnceFunc(func() { close(goOn) })
	p := w.open(e, sessions, "show", etcdlock.WithHooks(&etcdlock.Hooks{Waiting: func(etcdlock.Waiting) {
		e.Say("the writer finds that prices are locked, and waits")
		letReaderGoOn()
	}}))
	if err := w.set(p, ctx, map[string]int{"tea": oldPrice}); err != nil {
		return err
	}
	p.answer = func(ctx context.Context, price int) error {
		e.Say("the reader finds nothing in the cache, and has %d from the database", price)
		close(hasRead)
		select {
		case <-goOn:
			e.Say("the reader puts %d into the cache", price)
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	read := make(chan error, 1)
	go func() {
		_, err := w.get(p, ctx, "tea")
		read <- err
	}()
	select {
	case <-hasRead:
	case err := <-read:
		return fmt.Errorf("the reader did not ask the database: %w", err)
	}
	if err := w.set(p, ctx, map[string]int{"tea": newPrice}); err != nil {
		return err
	}
	e.Say("the writer has changed the price to %d, and emptied the cache", newPrice)
	letReaderGoOn()
	if err := <-read; err != nil {
		return err
	}
	p.answer = func(context.Context, int) error { return nil }
	wrong := 0
	for range later {
		price, err := w.get(p, ctx, "tea")
		if err != nil {
			return err
		}
		if price != newPrice {
			wrong++
		}
	}
	e.Say("of the next %d reads, %d say %d, and %d say %d\n", later, later-wrong, newPrice, wrong, oldPrice)
	if old := wrong > 0; old == w.locked {
		return fmt.Errorf("%s: %d of %d reads had an old price", w.name, wrong, later)
	}
	return nil
}
