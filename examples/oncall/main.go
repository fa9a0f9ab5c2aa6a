// Oncall is about two doctors who both want to go home.
//
//	go run ./examples/oncall
//
// One of them has to stay on duty. Each is a process that reads the roster, sees that the other is there,
// and writes that it has left itself. They write different keys, so neither overwrites the other.
// Still both are gone. This is write skew, and many databases let it happen. The program shows it,
// and then the same with a Mutex. Then it shows a way without a lock: a transaction of etcd that
// takes effect only if nothing that was read has changed. At the end it measures the two correct
// ways, alone and with many at once, to show when to prefer which.
//
// The part to copy into a service is in roster.go. The program exits with 0 only if both have
// left in the first act, and exactly one in the others.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/session"
)

var program = stage.Program{
	Name:  "oncall",
	Story: story,
	Roles: map[string]stage.Act{"doctor": doctor},
}

func main() { program.Main() }

// ways to leave.
var ways = []struct {
	name    string
	heading string
	leave   func(Roster, context.Context, string) error
	staying int // of two
}{
	{"unguarded", "Look, then write", Roster.LeaveUnguarded, 0},
	{"Mutex", "The same under a Mutex", Roster.LeaveLocked, 1},
	{"transaction", "No lock, but a transaction that compares", Roster.LeaveCompared, 1},
}

func story(ctx context.Context, e *stage.Etcd) error {
	for act, w := range ways {
		e.Printf("%d. %s\n", act+1, w.heading)
		onDuty, err := perform(ctx, e, act)
		if err != nil {
			return err
		}
		e.Printf("%10s on duty now: %s\n\n", "", names(onDuty))
		if len(onDuty) != w.staying {
			return fmt.Errorf("%s: there are %d on duty, not %d", w.name, len(onDuty), w.staying)
		}
	}
	if err := measure(ctx, e); err != nil {
		return err
	}
	e.Printf(`
A transaction that compares is the first choice where all that counts is in etcd and the work in between is
short and may be done again. Take the lock if that work is long or costly, is noticed outside (somebody gets
a call), or if nobody may be overtaken for ever: under the lock it is done once, and first come, first served.
`)
	return nil
}

// perform lets both doctors leave in one way, and returns who is on duty then.
func perform(ctx context.Context, e *stage.Etcd, way int) (onDuty []string, err error) {
	r := Roster{client: e.Client, prefix: e.Prefix + ways[way].name + "/"}
	if _, err := e.Client.Txn(ctx).Then(r.put("alice", "on"), r.put("bob", "on")).Commit(); err != nil {
		return nil, err
	}
	var doctors []*stage.Process
	lines := make(chan string)
	var talking sync.WaitGroup
	for _, name := range []string{"alice", "bob"} {
		p, err := e.Start(ctx, name, "doctor", job{name, way})
		if err != nil {
			return nil, err
		}
		defer p.Leave()
		doctors = append(doctors, p)
		talking.Go(func() {
			for line := range p.Lines {
				lines <- line
			}
		})
	}
	go func() {
		talking.Wait()
		close(lines)
	}()
	var said []string
	for line := range lines {
		said = append(said, line)
	}
	// What two processes say need not arrive in the order in which they said it.
	slices.SortStableFunc(said, func(a, b string) int { return cmp.Compare(when(a), when(b)) })
	e.Printf("%s\n", strings.Join(said, "\n"))
	for _, p := range doctors {
		err = errors.Join(err, p.Wait())
	}
	if err != nil {
		return nil, err
	}
	return r.onDuty(ctx)
}

// when is the time with which a line begins.
func when(line string) string {
	before, _, _ := strings.Cut(line, "s ")
	return before
}

type job struct {
	Doctor string
	Way    int
}

func doctor(ctx context.Context, e *stage.Etcd) error {
	var j job
	if err := e.Job(&j); err != nil {
		return err
	}
	say := func(format string, args ...any) { e.Say("%-6s %s", j.Doctor, fmt.Sprintf(format, args...)) }
	w := ways[j.Way]
	sessions := session.Keep(e.Client)
	defer sessions.Close(ctx)

	// Nobody goes on until the other has looked as well, or has found the roster locked. So what
	// comes of it is not just bad luck.
	both := sync.OnceValue(func() error { return e.Meet(ctx, w.name, 2) })
	var inLine sync.WaitGroup
	defer inLine.Wait()
	hooks := &etcdlock.Hooks{Waiting: func(etcdlock.Waiting) {
		say("finds the roster locked, and waits")
		inLine.Go(func() { _ = both() })
	}}
	looks := 0
	err := w.leave(Roster{
		client: e.Client,
		prefix: e.Prefix + w.name + "/",
		lock:   etcdlock.NewMutex(sessions, "roster", etcdlock.WithNamespace(e.Prefix+"locks"), etcdlock.WithHooks(hooks)),
		consider: func(_ context.Context, onDuty []string) error {
			looks++
			say("sees on duty: %s", names(onDuty))
			return both()
		},
	}, ctx, j.Doctor)
	switch {
	case errors.Is(err, ErrLast) && looks > 0:
		say("was overtaken, looks again, and sees that %v", err)
	case errors.Is(err, ErrLast):
		say("sees that %v", err)
	case err == nil:
		say("leaves")
	default:
		return err
	}
	return nil
}

func (r Roster) onDuty(ctx context.Context) (names []string, err error) {
	roster, err := r.client.Get(ctx, r.prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, err
	}
	for _, kv := range roster.Kvs {
		if string(kv.Value) == "on" {
			names = append(names, strings.TrimPrefix(string(kv.Key), r.prefix))
		}
	}
	return names, nil
}

func names(doctors []string) string {
	if len(doctors) == 0 {
		return "nobody"
	}
	return strings.Join(doctors, ", ")
}
