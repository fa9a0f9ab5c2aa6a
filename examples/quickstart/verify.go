package main

import (
	"fmt"

	"github.com/etcdlock/locks/etcdlock"
)

// evidence is what there is to judge the run by. Counter, writes and log come from etcd.
type evidence struct {
	goal    int64
	counter int64
	writes  int64   // of the counter's key, counted by etcd
	log     []entry // in the order of commits
	told    map[etcdlock.Token]int64
	kill    kill
}

// check is one promise, and whether it was kept.
type check struct {
	promise string
	detail  string
	passed  bool
}

// verify judges the run. It looks at nothing but its argument.
func verify(e evidence) []check {
	return []check{reached(e), nothingLost(e), tokensRose(e), nothingForgotten(e), takenOver(e)}
}

func reached(e evidence) check {
	return check{"the goal is reached", fmt.Sprintf("the counter stands at %d of %d", e.counter, e.goal), e.counter == e.goal}
}

// nothingLost: a lost increment is a write of the counter that another one undid. Then
// etcd has counted more writes than the counter shows, and two entries of the log wrote
// the same number.
func nothingLost(e evidence) check {
	c := check{promise: "no increment was lost"}
	for i, entry := range e.log {
		if entry.wrote() != int64(i)+1 {
			c.detail = fmt.Sprintf("increment %d, by %s with token %d, wrote %d", i+1, entry.Worker, entry.Token, entry.wrote())
			return c
		}
		if entry.created != entry.modified {
			c.detail = fmt.Sprintf("%s wrote more than once with token %d", entry.Worker, entry.Token)
			return c
		}
	}
	c.detail = fmt.Sprintf("counter %d = writes %d = log entries %d", e.counter, e.writes, len(e.log))
	c.passed = e.counter == e.writes && e.writes == int64(len(e.log))
	return c
}

func tokensRose(e evidence) check {
	c := check{promise: "tokens rose strictly"}
	last := etcdlock.Token(0)
	for _, entry := range e.log {
		if entry.Token <= last {
			c.detail = fmt.Sprintf("%s wrote %d with token %d after token %d", entry.Worker, entry.wrote(), entry.Token, last)
			return c
		}
		last = entry.Token
	}
	if len(e.log) > 0 {
		c.detail, c.passed = fmt.Sprintf("from %d to %d", e.log[0].Token, last), true
	}
	return c
}

// nothingForgotten: whatever etcd has confirmed to a worker must be there. The reverse
// need not be so: a worker may die between the commit and its report.
func nothingForgotten(e evidence) check {
	c := check{promise: "what was confirmed is there"}
	wrote := make(map[etcdlock.Token]int64, len(e.log))
	for _, entry := range e.log {
		wrote[entry.Token] = entry.wrote()
	}
	for token, value := range e.told {
		if wrote[token] != value {
			c.detail = fmt.Sprintf("%d was confirmed with token %d and is not in the log", value, token)
			return c
		}
	}
	c.detail, c.passed = fmt.Sprintf("%d of %d increments were confirmed to a worker", len(e.told), len(e.log)), true
	return c
}

func takenOver(e evidence) check {
	k := e.kill
	c := check{promise: "a dead holder was replaced"}
	switch {
	case k.at.IsZero():
		c.detail = "nobody was killed"
		return c
	case k.after == 0:
		c.detail = k.victim.Worker + " was killed and nobody took over"
		return c
	case k.successor.Token <= k.victim.Token:
		c.detail = fmt.Sprintf("token %d was followed by token %d", k.victim.Token, k.successor.Token)
		return c
	}
	written := "had not been written"
	for _, entry := range e.log {
		if entry.Token == k.victim.Token {
			written = "had been written"
		}
	}
	c.detail = fmt.Sprintf("%s by %s after %v; its increment %s",
		k.victim.Worker, k.successor.Worker, short(k.after), written)
	c.passed = true
	return c
}
