// Gcpause shows why a lock alone is not enough, and what is. A holder is suspended for longer than its
// TTL, another process takes over, and the first one wakes up and writes.
//
//	go -C examples/gcpause run .
//
// Alice and Bob, two processes, add money to an account, one at a time, under a lock. Alice reads the
// balance and checks that she holds the lock. Then she gets SIGSTOP, which stands for a long garbage
// collection, a paused virtual machine, or a closed lid. Bob gets the lock and does his work. Then Alice
// wakes up between her check and her write. The account is kept in etcd, behind HTTP, and in
// SQLite. Without protection Alice's late write takes effect, and Bob's money is gone. With
// the token or the guard of the hold it is refused.
//
// Read stores.go, the three stores with and without a fence, and then server.go, the HTTP server
// that refuses. clerk.go is what Alice and Bob do. The program is a module of its own because of SQLite.
// Windows cannot stop a process, so there the program says so and ends.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
)

const opening, aliceAdds, bobAdds = 100, 50, 20

var ttl = 2 * time.Second

var program = stage.Program{
	Name:  "gcpause",
	Story: story,
	Roles: map[string]stage.Act{"clerk": clerk},
	Flags: func(f *flag.FlagSet) { f.DurationVar(&ttl, "ttl", ttl, "lease TTL, at least 2s") },
}

func main() { program.Main() }

func story(ctx context.Context, e *stage.Etcd) error {
	if !canStop {
		return errors.New("this system has no SIGSTOP to stop a process with, and so there is nothing to show")
	}
	folder, err := os.MkdirTemp("", "gcpause")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	storage := newStorage(opening)
	url, stopServing, err := storage.serve()
	if err != nil {
		return err
	}
	defer stopServing()
	accounts := bank{Prefix: e.Prefix, URL: url, Database: filepath.Join(folder, "accounts.db")}
	if err := accounts.fill(ctx, e.Client, opening); err != nil {
		return err
	}

	e.Printf("Alice adds %d to an account and Bob adds %d, one at a time, under one lock; lease TTL %v.\n", aliceAdds, bobAdds, ttl)
	e.Printf("The account is kept in several places; there are %d in each.\n\n", opening)
	t, alice, bob, err := play(ctx, e, storage, accounts)
	if err != nil {
		return err
	}
	e.Printf("\n%s\n", t.draw(alice.Token, bob.Token))
	verdict := judge(ctx, e, accounts, alice, bob)
	e.Printf("\nNo lock can stop a process that stands still. So what must not happen has to be refused where it takes\n")
	e.Printf("effect: with h.Txn or h.Guard in etcd; with the token, kept beside the data, everywhere else.\n")
	return verdict
}

// play returns the times of what happened, and what Alice and Bob reported of their writes.
func play(ctx context.Context, e *stage.Etcd, s *storage, b bank) (t timeline, wroteA, wroteB report, err error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	fail := func(err error) (timeline, report, report, error) { return t, wroteA, wroteB, err }

	alice, err := e.Start(ctx, "alice", "clerk", job{Name: "alice", Adds: aliceAdds, TTL: ttl, Bank: b, Pauses: true})
	if err != nil {
		return fail(err)
	}
	defer func() { _, _ = alice.Kill(), alice.Wait() }() // nobody is left standing
	holdsA, err := hear(alice, "holds")
	if err != nil {
		return fail(err)
	}
	t.aliceHolds = holdsA.At
	e.Say("alice    holds the lock with token %d and reads %d", holdsA.Token, holdsA.Balances[0])
	select {
	case <-s.paused: // until resume is closed she cannot write, so the rest depends on nobody's speed
	case <-ctx.Done():
		return fail(context.Cause(ctx))
	}
	t.stopped = time.Now()
	if err := stop(alice); err != nil {
		return fail(err)
	}
	e.Say("SIGSTOP  alice (pid %d) has just seen that h.Err() == nil, is about to write, and stands still", alice.PID())

	bob, err := e.Start(ctx, "bob", "clerk", job{Name: "bob", Adds: bobAdds, TTL: ttl, Bank: b})
	if err != nil {
		return fail(err)
	}
	defer func() { _, _ = bob.Kill(), bob.Wait() }()
	t.bobWaits = time.Now()
	e.Say("bob      waits in line for the lock")
	holdsB, err := hear(bob, "holds")
	if err != nil {
		return fail(err)
	}
	t.bobHolds = holdsB.At
	e.Say("bob      holds the lock with token %d, as alice's lease has run out, and reads %d", holdsB.Token, holdsB.Balances[0])
	if wroteB, err = hear(bob, "wrote"); err != nil {
		return fail(err)
	}
	t.bobWrites = wroteB.At
	if err := bob.Wait(); err != nil {
		return fail(err)
	}
	e.Say("bob      has written %d everywhere, has unlocked and is gone", opening+bobAdds)

	close(s.resume)
	t.woken = time.Now()
	if err := wake(alice); err != nil {
		return fail(err)
	}
	e.Say("SIGCONT  alice goes on where she stood, and writes %d everywhere", opening+aliceAdds)
	if wroteA, err = hear(alice, "wrote"); err != nil {
		return fail(err)
	}
	t.aliceWrites, t.aliceTrusts = wroteA.At, wroteA.Deadline
	if err := alice.Wait(); err != nil {
		return fail(err)
	}
	e.Say("alice    looks once more: %s", wroteA.Looked)
	if wroteA.Token >= wroteB.Token {
		return fail(fmt.Errorf("tokens did not rise: %d, then %d", wroteA.Token, wroteB.Token))
	}
	return fail(nil)
}

// judge shows the account in each place. Its error names the places where a promise was broken.
func judge(ctx context.Context, e *stage.Etcd, b bank, alice, bob report) (wrong error) {
	places, closePlaces, err := b.open(e.Client)
	if err != nil {
		return err
	}
	defer closePlaces()
	const line = "%-48s %-12s %-18s %s\n"
	e.Printf(line, "place", "bob's write", "alice's, late", "in the end")
	for i, p := range places {
		balance, err := p.Balance(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		end, want := fmt.Sprint(balance), opening+aliceAdds
		if p.fenced {
			want = opening + bobAdds
		}
		if balance == opening+aliceAdds {
			end += fmt.Sprintf(": bob's %d are lost", bobAdds)
		}
		e.Printf(line, p.name, bob.Results[i], alice.Results[i], end)
		if balance != want || bob.Results[i] != landed || (alice.Results[i] == landed) == p.fenced {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %d where it should be %d", p.name, balance, want))
		}
	}
	return wrong
}

// report is what Alice and Bob say, a line of JSON each.
type report struct {
	What     string // holds, wrote
	At       time.Time
	Token    etcdlock.Token
	Balances []int     // read
	Results  []string  // of the writes
	Looked   string    // what h.Err() says after them
	Deadline time.Time // until when the hold could be trusted
}

// hear waits for the next thing that somebody says, which has to be what.
func hear(p *stage.Process, what string) (r report, err error) {
	line, ok := <-p.Lines
	if !ok {
		return r, fmt.Errorf("%s is gone before it said %q", p.Name, what)
	}
	if err := json.Unmarshal([]byte(line), &r); err != nil || r.What != what {
		return r, errors.Join(fmt.Errorf("%s said %q", p.Name, line), err)
	}
	return r, nil
}
