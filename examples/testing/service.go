package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// payTime is what a payment takes at most as a rule. The TTL has to be well above it.
const payTime = time.Second

// Bank belongs to another party. It pays every order, and cannot check a token.
type Bank interface {
	Pay(ctx context.Context, to string) error
}

// Payroll pays everybody once. Several processes may run one, for the case that one of them dies:
// the lock is there so that they do not pay the same person at the same time.
type Payroll struct {
	client   *clientv3.Client
	sessions *session.Keeper
	lock     etcdlock.Locker
	bank     Bank
	prefix   string // of the book in etcd: who has been paid
	people   []string
}

// NewPayroll returns a payroll; Close it.
func NewPayroll(client *clientv3.Client, bank Bank, prefix string, people []string, opts ...session.Option) *Payroll {
	sessions := session.Keep(client, opts...)
	return &Payroll{
		client: client, sessions: sessions, bank: bank, prefix: prefix, people: people,
		lock: etcdlock.NewMutex(sessions, "payroll", etcdlock.WithNamespace(prefix+"locks")),
	}
}

// Close releases what it has.
func (p *Payroll) Close(ctx context.Context) error { return p.sessions.Close(ctx) }

// RunCarelessly pays the people that have not been paid. It looks right, and it works as long as the
// network does.
func (p *Payroll) RunCarelessly(ctx context.Context) (err error) {
	h, err := p.lock.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = h.Unlock(ctx) }() // BUG: this is where it would hear of a loss, if late
	for _, person := range p.people {
		paid, err := p.paid(ctx, person)
		if err != nil {
			return err
		}
		if paid {
			continue
		}
		if err := p.bank.Pay(ctx, person); err != nil { // BUG: ctx goes on when the lock is lost
			return err
		}
		if _, err := p.client.Put(ctx, p.entry(person), "paid"); err != nil { // BUG: not guarded
			return err
		}
	}
	return nil
}

// Run pays the people that have not been paid. If it loses the lock it stops, and its error wraps ErrLost.
func (p *Payroll) Run(ctx context.Context) error {
	return etcdlock.Do(ctx, p.lock, func(ctx context.Context, h *etcdlock.Hold) error {
		for _, person := range p.people {
			paid, err := p.paid(ctx, person)
			if err != nil {
				return err
			}
			if paid {
				continue
			}
			if err := p.pay(ctx, h, person); err != nil {
				return fmt.Errorf("paying %s: %w", person, err)
			}
		}
		return nil
	})
}

// pay begins nothing that the lock may not last for. ctx, which ends with the lock, is for what takes longer
// all the same.
func (p *Payroll) pay(ctx context.Context, h *etcdlock.Hold, person string) error {
	if err := h.Ensure(ctx, payTime); err != nil {
		return err
	}
	if err := p.bank.Pay(ctx, person); err != nil {
		return err
	}
	// Booking twice does no harm, so where the answer is lost it is done again.
	return session.Retry(ctx, func(ctx context.Context) error {
		_, err := h.Txn(ctx).Then(clientv3.OpPut(p.entry(person), "paid")).Commit()
		return err
	})
}

func (p *Payroll) entry(person string) string { return p.prefix + "paid/" + person }

func (p *Payroll) paid(ctx context.Context, person string) (bool, error) {
	answer, err := p.client.Get(ctx, p.entry(person))
	if err != nil {
		return false, errors.Join(errors.New("looking into the book"), err)
	}
	return len(answer.Kvs) > 0, nil
}
