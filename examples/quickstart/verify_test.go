package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/etcdlock"
)

// good is the evidence of a run in which worker-2 was killed and everything went well.
func good() evidence {
	line := func(worker string, token etcdlock.Token, read, revision int64) entry {
		return entry{turn: turn{Worker: worker, Token: token, Read: read}, created: revision, modified: revision}
	}
	return evidence{
		goal: 4, counter: 4, writes: 4,
		log: []entry{
			line("worker-1", 10, 0, 13),
			line("worker-2", 11, 1, 15),
			line("worker-1", 17, 2, 19),
			line("worker-1", 21, 3, 23),
		},
		told: map[etcdlock.Token]int64{10: 1, 11: 2, 17: 3, 21: 4},
		kill: kill{
			victim:    turn{Worker: "worker-2", Token: 16, Read: 2},
			successor: turn{Worker: "worker-1", Token: 17, Read: 2},
			at:        time.Unix(1, 0),
			after:     2 * time.Second,
		},
	}
}

func failed(checks []check) (promises []string) {
	for _, c := range checks {
		if !c.passed {
			promises = append(promises, c.promise)
		}
	}
	return promises
}

func TestVerifyPassesAGoodRun(t *testing.T) {
	require.Empty(t, failed(verify(good())))
}

func TestVerifyPassesWhatTheDeadHolderWrote(t *testing.T) {
	e := good()
	e.kill.victim = e.log[1].turn
	delete(e.told, e.log[1].Token) // it died before it could say so
	checks := verify(e)
	require.Empty(t, failed(checks))
	require.Contains(t, checks[3].detail, "3 of 4")
	require.Contains(t, checks[4].detail, "had been written")
}

func TestVerifyFails(t *testing.T) {
	const (
		goal      = "the goal is reached"
		lost      = "no increment was lost"
		tokens    = "tokens rose strictly"
		confirmed = "what was confirmed is there"
		replaced  = "a dead holder was replaced"
	)
	tests := []struct {
		name  string
		spoil func(e *evidence)
		want  []string
	}{
		{"nothing happened", func(e *evidence) { *e = evidence{goal: 4} }, []string{goal, tokens, replaced}},
		{"goal missed", func(e *evidence) { e.goal = 5 }, []string{goal}},
		{"two holders read the same number", func(e *evidence) {
			e.log[2].Read, e.log[3].Read, e.counter = 1, 2, 3
			e.told[17], e.told[21] = 2, 3
		}, []string{goal, lost}},
		{"counter written without a log entry", func(e *evidence) { e.writes = 5 }, []string{lost}},
		{"counter set back", func(e *evidence) { e.counter = 3 }, []string{goal, lost}},
		{"increment missing in the log", func(e *evidence) { e.log = e.log[:3] }, []string{lost, confirmed}},
		{"log entry overwritten", func(e *evidence) { e.log[1].created-- }, []string{lost}},
		{"token went down", func(e *evidence) {
			e.log[2].Token = 9
			delete(e.told, 17)
		}, []string{tokens}},
		{"token used twice", func(e *evidence) {
			e.log[2].Token = e.log[1].Token
			delete(e.told, 17)
			delete(e.told, 11)
		}, []string{tokens}},
		{"confirmed and gone", func(e *evidence) { e.told[12] = 2 }, []string{confirmed}},
		{"confirmed and different", func(e *evidence) { e.told[11] = 3 }, []string{confirmed}},
		{"nobody was killed", func(e *evidence) { e.kill = kill{} }, []string{replaced}},
		{"nobody took over", func(e *evidence) { e.kill.after = 0 }, []string{replaced}},
		{"successor has a lower token", func(e *evidence) { e.kill.successor.Token = 15 }, []string{replaced}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := good()
			tt.spoil(&e)
			require.Equal(t, tt.want, failed(verify(e)))
		})
	}
}
