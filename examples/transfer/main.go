// Transfer moves money between accounts, each of which has a lock, in many processes at a time.
//
//	go run ./examples/transfer
//
// A transfer needs two locks. A process that takes one after the other waits for ever sooner or later: for
// a process that has the second and waits for the first. That is the first act, with a deadline, so
// that it ends and names the holder. In the second, processes move money between random
// accounts, and take both locks at once (Multi), in random order: nobody gets stuck, and the sum
// of all accounts is the same after each transfer. In the third a process is killed in the middle
// of one. Its locks come free when its lease has run out, and no money is lost or made, since the
// transfer is one transaction that takes effect only while the locks are held.
//
// The part to copy into a service is in bank.go; audit.go is the proof. The program exits with 0 only if the sum is
// right at every revision of etcd at which there was a transfer.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/session"
)

const (
	customers    = 6
	tellers      = 4
	transfers    = 20 // of each
	opening      = 100
	approvalTime = 10 * time.Millisecond
	patience     = 500 * time.Millisecond
	victimTTL    = 2 * time.Second // so that the audience need not wait for long
)

// people have accounts. The first ones, so many, are customers of the second act.
var people = []string{"alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi"}

var program = stage.Program{
	Name:  "transfer",
	Story: story,
	Roles: map[string]stage.Act{"one by one": oneByOne, "teller": teller, "victim": victim},
}

func main() { program.Main() }

func story(ctx context.Context, e *stage.Etcd) error {
	b, closeBank := open(e, "the story", approve)
	defer closeBank()
	var accounts []clientv3.Op
	for _, name := range people {
		accounts = append(accounts, b.put(name, opening))
	}
	if _, err := e.Client.Txn(ctx).Then(accounts...).Commit(); err != nil {
		return err
	}
	for i, act := range []struct {
		heading string
		play    func(context.Context, *stage.Etcd, *Bank) error
	}{
		{"Two locks, one after the other", deadlock},
		{fmt.Sprintf("Both at once: %d processes, %d accounts, random pairs in random order", tellers, customers), business},
		{"A process is killed in the middle of a transfer", accident},
	} {
		e.Printf("%d. %s\n", i+1, act.heading)
		if err := act.play(ctx, e, b); err != nil {
			return err
		}
		e.Printf("\n")
	}
	e.Printf(`With Multi nobody has to think of an order of locks: it takes all or none, first come, first served.
And what has to happen as a whole is one transaction, guarded by the locks: that is what survives a crash.
`)
	return nil
}

func deadlock(ctx context.Context, e *stage.Etcd, _ *Bank) error {
	var stuck []*stage.Process
	for i, t := range []Transfer{{"", people[0], people[1], 10}, {"", people[1], people[0], 10}} {
		p, err := e.Start(ctx, fmt.Sprintf("teller-%d", i+1), "one by one", t)
		if err != nil {
			return err
		}
		defer p.Leave()
		stuck = append(stuck, p)
	}
	for range 2 {
		for _, p := range stuck {
			if line, ok := <-p.Lines; ok {
				e.Printf("%s\n", line)
			}
		}
	}
	return errors.Join(stuck[0].Wait(), stuck[1].Wait())
}

// oneByOne locks the payer's account, and then the payee's.
func oneByOne(ctx context.Context, e *stage.Etcd) error {
	var t Transfer
	if err := e.Job(&t); err != nil {
		return err
	}
	b, closeBank := open(e, fmt.Sprintf("from %s to %s", t.From, t.To), approve)
	defer closeBank()
	return etcdlock.Do(ctx, b.lock(t.From), func(ctx context.Context, _ *etcdlock.Hold) error {
		e.Say("from %s to %s: has locked %s, wants %s", t.From, t.To, t.From, t.To)
		if err := e.Meet(ctx, "both have one", 2); err != nil {
			return err
		}
		bounded, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		h, err := b.lock(t.To).Lock(bounded)
		if err == nil {
			return errors.Join(fmt.Errorf("%s was free", h.Name()), h.Unlock(ctx))
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		owner := "somebody" // if that cannot be found out within a moment
		if blocked := (*etcdlock.BlockedError)(nil); errors.As(err, &blocked) {
			owner = blocked.Owner.Label
		}
		e.Say("from %s to %s: gives up %s after %v; it is locked by the teller %s", t.From, t.To, t.To, patience, owner)
		return e.Meet(ctx, "both have given up", 2)
	})
}

// count is what a teller reports.
type count struct{ Done, Refused int }

func business(ctx context.Context, e *stage.Etcd, b *Bank) error {
	began := time.Now()
	var crew []*stage.Process
	for i := range tellers {
		name := fmt.Sprintf("teller-%d", i+1)
		p, err := e.Start(ctx, name, "teller", name)
		if err != nil {
			return err
		}
		defer p.Leave()
		crew = append(crew, p)
	}
	var all count
	for _, p := range crew {
		line := <-p.Lines
		if err := p.Wait(); err != nil {
			return err
		}
		var its count
		if err := json.Unmarshal([]byte(line), &its); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
		all.Done += its.Done
		all.Refused += its.Refused
	}
	e.Say("%d transfers carried out, %d refused for want of money, in %.2f s", all.Done, all.Refused, time.Since(began).Seconds())
	return audit(ctx, e, b, all.Done)
}

func teller(ctx context.Context, e *stage.Etcd) error {
	var name string
	if err := e.Job(&name); err != nil {
		return err
	}
	b, closeBank := open(e, name, approve)
	defer closeBank()
	var its count
	for i := range transfers {
		pair := rand.Perm(customers)
		err := b.Transfer(ctx, Transfer{
			ID: fmt.Sprintf("%s-%d", name, i), From: people[pair[0]], To: people[pair[1]], Amount: 1 + rand.N(opening/2),
		})
		switch {
		case err == nil:
			its.Done++
		case errors.Is(err, ErrFunds):
			its.Refused++
		default:
			return err
		}
	}
	line, err := json.Marshal(its)
	e.Printf("%s\n", line)
	return err
}

func accident(ctx context.Context, e *stage.Etcd, b *Bank) error {
	before, err := b.receipts(ctx)
	if err != nil {
		return err
	}
	payer, payee := people[customers], people[customers+1]
	p, err := e.Start(ctx, "victim", "victim", Transfer{"by the victim", payer, payee, 1})
	if err != nil {
		return err
	}
	e.Printf("%s\n", <-p.Lines)
	if err := p.Kill(); err != nil {
		return err
	}
	if err := p.Wait(); err == nil {
		return errors.New("the victim has survived")
	}
	e.Say("it is killed; the next transfer from %s to %s waits", payer, payee)
	if err := b.Transfer(ctx, Transfer{"after the accident", payer, payee, 1}); err != nil {
		return err
	}
	e.Say("that one is carried out, the lease of %v being over; the other left nothing", victimTTL)
	return audit(ctx, e, b, len(before)+1)
}

// victim stops in the middle of a transfer.
func victim(ctx context.Context, e *stage.Etcd) error {
	var t Transfer
	if err := e.Job(&t); err != nil {
		return err
	}
	b, closeBank := open(e, "victim", func(ctx context.Context, t Transfer) error {
		e.Say("a process has locked %s and %s, has read both, and is about to write", t.From, t.To)
		<-ctx.Done()
		return context.Cause(ctx)
	}, session.WithTTL(victimTTL))
	defer closeBank()
	return b.Transfer(ctx, t)
}

func approve(ctx context.Context, _ Transfer) error {
	select {
	case <-time.After(approvalTime):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func open(e *stage.Etcd, label string, approve func(context.Context, Transfer) error, options ...session.Option) (*Bank, func()) {
	sessions := session.Keep(e.Client, options...)
	locks := []etcdlock.Option{etcdlock.WithNamespace(e.Prefix + "locks"), etcdlock.WithLabel(label)}
	return &Bank{e.Client, e.Prefix, sessions, locks, approve}, func() { _ = sessions.Close(context.Background()) }
}
