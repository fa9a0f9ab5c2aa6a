package proof_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// action is what a client did to one or several locks.
type action int

const (
	acquire   action = iota + 1
	downgrade        // from exclusive to upgradeable
	upgrade          // back
	end              // of a hold, however it ended
	write            // to a store that is fenced by the lock
)

func (a action) String() string {
	return [...]string{"?", "acquire", "downgrade", "upgrade", "end", "write"}[a]
}

// step is an operation of a history. Only those that took effect, or may have, are in it.
type step struct {
	action action
	names  []string // several for a multi-lock
	token  int64
	weight int64 // of permits; 0 for an exclusive hold, and less for a shared or upgradeable one
	size   int64 // of the semaphore

	// handedOn is whether the lock may have been handed on in memory, or kept: then the token is
	// the same as before.
	handedOn bool
	entered  bool // through a re-entrant lock
}

const (
	exclusive   = 0
	shared      = -1
	upgradeable = -2
)

func (s step) String() string {
	kind := fmt.Sprint(s.weight, " permits")
	switch s.weight {
	case exclusive:
		kind = "exclusive"
	case shared:
		kind = "shared"
	case upgradeable:
		kind = "upgradeable"
	}
	return fmt.Sprintf("%v %s %s #%d", s.action, strings.Join(s.names, "+"), kind, s.token)
}

// lockState is one lock: its holders, and their modes.
type lockState struct {
	holders map[int64]int64 // weight by token
	highest int64           // token of an exclusive holder so far
	written int64           // token of the last write
}

// world is the state of the model: all locks by name. It is never changed, only copied.
type world map[string]lockState

// admits tells whether a lock can be held in another way by one more.
func (l lockState) admits(s step) bool {
	if s.token < l.highest || s.token == l.highest && !s.handedOn {
		return false // tokens rise from one exclusive owner to the next
	}
	sum := int64(0)
	for _, weight := range l.holders {
		if weight == exclusive || s.weight == exclusive || (weight < 0) != (s.weight < 0) || weight == upgradeable && s.weight == upgradeable {
			return false
		}
		sum += weight
	}
	return s.weight < 0 || sum+s.weight <= s.size
}

// next returns the world after a step, and whether it is possible.
func (w world) next(s step) (world, bool) {
	after := maps.Clone(w)
	if after == nil {
		after = world{}
	}
	for _, name := range s.names {
		l := after[name]
		l.holders = maps.Clone(l.holders)
		if l.holders == nil {
			l.holders = map[int64]int64{}
		}
		_, holds := l.holders[s.token]
		switch s.action {
		case acquire:
			if holds || !l.admits(s) {
				return w, false
			}
			l.holders[s.token] = s.weight
			if s.weight == exclusive {
				l.highest = s.token
			}
		case downgrade:
			if !holds || l.holders[s.token] != exclusive {
				return w, false
			}
			l.holders[s.token] = upgradeable
		case upgrade:
			if len(l.holders) > 1 || l.holders[s.token] != upgradeable || s.token < l.highest {
				return w, false
			}
			l.holders[s.token], l.highest = exclusive, s.token
		case end:
			if !holds {
				return w, false
			}
			delete(l.holders, s.token)
		case write:
			if s.token < max(l.written, l.highest) {
				return w, false
			}
			l.written = s.token
		}
		after[name] = l
	}
	return after, true
}

func (w world) equal(other world) bool {
	return maps.EqualFunc(w, other, func(a, b lockState) bool {
		return a.highest == b.highest && a.written == b.written && maps.Equal(a.holders, b.holders)
	})
}

func (w world) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(w)) {
		for _, token := range slices.Sorted(maps.Keys(w[name].holders)) {
			parts = append(parts, fmt.Sprintf("%s: #%d (%d)", name, token, w[name].holders[token]))
		}
	}
	return strings.Join(parts, "; ")
}

// model is what porcupine checks a history against.
var model = porcupine.Model{
	Init: func() any { return world{} },
	Step: func(state, input, _ any) (bool, any) {
		after, possible := state.(world).next(input.(step))
		return possible, after
	},
	Equal:             func(a, b any) bool { return a.(world).equal(b.(world)) },
	DescribeOperation: func(input, _ any) string { return input.(step).String() },
	DescribeState:     func(state any) string { return state.(world).String() },
	// Locks that are never taken together do not concern each other.
	Partition: partition,
}

// partition splits a history into the parts whose names are connected by multi-locks.
func partition(history []porcupine.Operation) [][]porcupine.Operation {
	group := map[string]string{}
	var root func(string) string
	root = func(name string) string {
		if parent, ok := group[name]; ok && parent != name {
			return root(parent)
		}
		return name
	}
	for _, op := range history {
		names := op.Input.(step).names
		for _, name := range names {
			group[root(name)] = root(names[0])
		}
	}
	parts := map[string][]porcupine.Operation{}
	for _, op := range history {
		name := root(op.Input.(step).names[0])
		parts[name] = append(parts[name], op)
	}
	return slices.Collect(maps.Values(parts))
}

// one is a hold of one name in a history written by hand.
// handedOn is an acquisition of what has been handed on in memory.
func handedOn(name string, token, call, ret int64) porcupine.Operation {
	op := one(acquire, name, token, exclusive, call, ret)
	s := op.Input.(step)
	s.handedOn = true
	op.Input = s
	return op
}

func one(a action, name string, token, weight, call, ret int64) porcupine.Operation {
	return porcupine.Operation{
		ClientId: int(token), Input: step{action: a, names: []string{name}, token: token, weight: weight, size: 3}, Call: call, Return: ret,
	}
}

func TestTheModelTellsRightFromWrong(t *testing.T) {
	both := func(a action, token, call, ret int64) porcupine.Operation {
		op := one(a, "a", token, exclusive, call, ret)
		op.Input = step{action: a, names: []string{"a", "b"}, token: token}
		return op
	}
	tests := map[string]struct {
		right   bool
		history []porcupine.Operation
	}{
		"one after the other": {true, []porcupine.Operation{
			one(acquire, "a", 1, exclusive, 0, 1), one(end, "a", 1, exclusive, 2, 4), one(acquire, "a", 2, exclusive, 0, 3)}},
		"two at a time": {false, []porcupine.Operation{
			one(acquire, "a", 1, exclusive, 0, 1), one(acquire, "a", 2, exclusive, 0, 3), one(end, "a", 1, exclusive, 4, 5)}},
		"two names": {true, []porcupine.Operation{
			one(acquire, "a", 1, exclusive, 0, 1), one(acquire, "b", 2, exclusive, 0, 3)}},
		"a token twice": {false, []porcupine.Operation{
			one(acquire, "a", 5, exclusive, 1, 2), one(end, "a", 5, exclusive, 3, 4),
			one(acquire, "a", 5, exclusive, 5, 6), one(end, "a", 5, exclusive, 7, 8),
		}},
		"a token twice, handed on": {true, []porcupine.Operation{
			one(acquire, "a", 5, exclusive, 1, 2), one(end, "a", 5, exclusive, 3, 4),
			handedOn("a", 5, 5, 6), one(end, "a", 5, exclusive, 7, 8),
		}},
		"handed on to two": {false, []porcupine.Operation{
			one(acquire, "a", 5, exclusive, 1, 2), handedOn("a", 5, 3, 4), one(end, "a", 5, exclusive, 7, 8),
		}},
		"handed on behind another's back": {false, []porcupine.Operation{
			one(acquire, "a", 5, exclusive, 1, 2), one(end, "a", 5, exclusive, 3, 4),
			one(acquire, "a", 9, exclusive, 5, 6), one(end, "a", 9, exclusive, 7, 8),
			handedOn("a", 5, 9, 10),
		}},
		"a token that falls": {false, []porcupine.Operation{
			one(acquire, "a", 2, exclusive, 0, 1), one(end, "a", 2, exclusive, 2, 3), one(acquire, "a", 1, exclusive, 4, 5)}},
		"readers share": {true, []porcupine.Operation{
			one(acquire, "a", 1, shared, 0, 1), one(acquire, "a", 2, shared, 2, 3)}},
		"a reader beside a writer": {false, []porcupine.Operation{
			one(acquire, "a", 1, exclusive, 0, 1), one(acquire, "a", 2, shared, 2, 3)}},
		"a reader beside a downgraded writer": {true, []porcupine.Operation{
			one(acquire, "a", 1, exclusive, 0, 1), one(downgrade, "a", 1, exclusive, 2, 5), one(acquire, "a", 2, shared, 0, 3)}},
		"upgradeable beside readers": {true, []porcupine.Operation{
			one(acquire, "a", 1, shared, 0, 1), one(acquire, "a", 2, upgradeable, 2, 3), one(acquire, "a", 3, shared, 4, 5)}},
		"two that are upgradeable": {false, []porcupine.Operation{
			one(acquire, "a", 1, upgradeable, 0, 1), one(acquire, "a", 2, upgradeable, 2, 3)}},
		"an upgrade when the reader has left": {true, []porcupine.Operation{
			one(acquire, "a", 1, upgradeable, 0, 1), one(acquire, "a", 2, shared, 2, 3), one(upgrade, "a", 1, upgradeable, 4, 9),
			one(end, "a", 2, shared, 5, 8)}},
		"an upgrade beside a reader": {false, []porcupine.Operation{
			one(acquire, "a", 1, upgradeable, 0, 1), one(acquire, "a", 2, shared, 2, 3), one(upgrade, "a", 1, upgradeable, 4, 5)}},
		"a reader beside what was upgraded": {false, []porcupine.Operation{
			one(acquire, "a", 1, upgradeable, 0, 1), one(upgrade, "a", 1, upgradeable, 2, 3), one(acquire, "a", 2, shared, 4, 5)}},
		"an upgraded writer that was downgraded": {true, []porcupine.Operation{
			one(acquire, "a", 1, exclusive, 0, 1), one(downgrade, "a", 1, exclusive, 2, 3), one(upgrade, "a", 1, upgradeable, 4, 5),
			one(downgrade, "a", 1, exclusive, 6, 7), one(acquire, "a", 2, shared, 8, 9)}},
		"permits up to the size": {true, []porcupine.Operation{
			one(acquire, "a", 1, 2, 0, 1), one(acquire, "a", 2, 1, 2, 3)}},
		"more permits than the size": {false, []porcupine.Operation{
			one(acquire, "a", 1, 2, 0, 1), one(acquire, "a", 2, 2, 2, 3)}},
		"half of a multi-lock": {false, []porcupine.Operation{
			both(acquire, 1, 0, 1), one(acquire, "b", 2, exclusive, 2, 3), both(end, 1, 4, 5)}},
		"a write of a replaced holder": {false, []porcupine.Operation{
			one(write, "a", 2, exclusive, 0, 1), one(write, "a", 1, exclusive, 2, 3)}},
		"a write of a holder whose successor has not written yet": {false, []porcupine.Operation{
			one(acquire, "a", 1, exclusive, 0, 1), one(end, "a", 1, exclusive, 2, 3), one(acquire, "a", 2, exclusive, 4, 5),
			one(write, "a", 1, exclusive, 6, 7)}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { require.Equal(t, tt.right, porcupine.CheckOperations(model, tt.history)) })
	}
}
