package main

import (
	"context"
	"maps"
	"sync"
)

// fakeBank counts payments, and can be slow to order.
type fakeBank struct {
	mu    sync.Mutex
	paid  map[string]int
	slow  *slowPayment // the next one that fits; nil: none
	hears func(who, format string, args ...any)
}

// slowPayment is one that the bank holds back until it is released.
type slowPayment struct {
	to      string
	reached chan struct{} // closed when it has come in
	goOn    chan struct{} // to be closed
}

func newFakeBank(hears func(who, format string, args ...any)) *fakeBank {
	return &fakeBank{paid: make(map[string]int), hears: hears}
}

// slowDown makes the next payment to somebody slow.
func (b *fakeBank) slowDown(to string) *slowPayment {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slow = &slowPayment{to, make(chan struct{}), make(chan struct{})}
	return b.slow
}

// payments returns how often everybody has been paid.
func (b *fakeBank) payments() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.paid)
}

// takeSlow returns the payment that has been slowed down, once, if it is this one.
func (b *fakeBank) takeSlow(to string) *slowPayment {
	b.mu.Lock()
	defer b.mu.Unlock()
	slow := b.slow
	if slow == nil || slow.to != to {
		return nil
	}
	b.slow = nil
	return slow
}

// counter is the bank for one customer.
type counter struct {
	*fakeBank
	who string
}

// Pay is Bank.Pay. A payment whose context ends before it is made is not made.
func (c counter) Pay(ctx context.Context, to string) error {
	if slow := c.takeSlow(to); slow != nil {
		c.hears(c.who, "asks the bank to pay %s, and the bank takes its time", to)
		close(slow.reached)
		select {
		case <-slow.goOn:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		c.hears(c.who, "gives the payment to %s up: its context has ended", to)
		return ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paid[to]++
	c.hears(c.who, "pays %s", to)
	return nil
}
