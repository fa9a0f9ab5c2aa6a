package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/etcdlock/locks/etcdlock"
)

// account tells the audience what happens: a line for each turn, begun when a worker has
// the lock and completed when it has written.
type account struct {
	out   io.Writer
	began time.Time
	open  etcdlock.Token // whose line is to be completed; 0: none
	err   error          // the first of a write: nobody reads any more
}

func newAccount(out io.Writer, began time.Time) *account {
	return &account{out: out, began: began}
}

func (a *account) opening(where, prefix string, cfg config) {
	a.printf("etcd     %s\n", where)
	a.printf("prefix   %s\n", prefix)
	a.printf("plan     %d processes count to %d, one at a time; at %d the holder is killed; lease TTL %v\n\n",
		cfg.workers, cfg.rounds, cfg.rounds/2, cfg.ttl)
	a.printf("%7s  %-10s %7s %8s %9s   %s\n", "time", "holder", "pid", "token", "waited", "counter")
}

func (a *account) holds(t turn) {
	a.complete("")
	a.printf("%7s  %-10s %7d %8d %9v   %d ",
		a.elapsed(), t.Worker, t.PID, t.Token, short(t.Waited), t.Read)
	a.open = t.Token
}

func (a *account) wrote(t turn) {
	if a.open != t.Token {
		a.holds(t) // somebody else came in between
	}
	a.complete(fmt.Sprintf("-> %d", t.wrote()))
}

func (a *account) killed(t turn) {
	a.complete(fmt.Sprintf("... it is about to write %d", t.wrote()))
	a.printf("\n%7s  KILL       %s (pid %d) gets SIGKILL while it holds the lock.\n", a.elapsed(), t.Worker, t.PID)
	a.printf("%7s             The others wait until its lease, TTL %v, has run out.\n", "", t.TTL)
}

func (a *account) takenOver(k kill) {
	a.complete("")
	a.printf("%7s  TAKE-OVER  %s has the lock %v after the kill, token %d > %d.\n\n",
		a.elapsed(), k.successor.Worker, short(k.after), k.successor.Token, k.victim.Token)
}

// note is for what does not happen as a rule.
func (a *account) note(format string, args ...any) {
	a.complete("...")
	a.printf("%7s  NOTE       %s\n", a.elapsed(), fmt.Sprintf(format, args...))
}

func (a *account) complete(how string) {
	if a.open != 0 {
		a.printf("%s\n", how)
	}
	a.open = 0
}

// closing prints the verdict and returns it.
func (a *account) closing(e evidence, checks []check) (passed bool) {
	turns := make(map[string]int)
	for _, entry := range e.log {
		turns[entry.Worker]++
	}
	var shares []string
	for name, n := range turns {
		shares = append(shares, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(shares)
	a.printf("\nturns    %s\n\n", strings.Join(shares, ", "))

	passed = true
	for _, c := range checks {
		verdict := "PASS"
		if !c.passed {
			verdict, passed = "FAIL", false
		}
		a.printf("%s     %-28s %s\n", verdict, c.promise, c.detail)
	}
	verdict := "all promises kept"
	if !passed {
		verdict = "NOT all promises kept"
	}
	a.printf("\n%s, %s\n", verdict, a.elapsed())
	return passed
}

func (a *account) printf(format string, args ...any) {
	if a.err == nil {
		_, a.err = fmt.Fprintf(a.out, format, args...)
	}
}

func (a *account) elapsed() string { return fmt.Sprintf("%.2fs", time.Since(a.began).Seconds()) }

// short is d for people: three digits are enough.
func short(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}
