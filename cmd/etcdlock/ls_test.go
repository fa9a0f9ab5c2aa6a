package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/status"
)

// locks are what ls has to show, of every kind.
func locks() []etcdlock.Queue {
	owner := func(pid int) fairqueue.Owner {
		return fairqueue.Owner{Host: "a", PID: pid, Program: "backup", Label: "nightly\x1b[2J", Since: time.Date(2026, 11, 29, 12, 0, pid, 0, time.UTC)}
	}
	return []etcdlock.Queue{
		{Name: "controller", Prefix: "etcdlock/controller/", Holding: 1, Places: []etcdlock.Place{
			{Key: "etcdlock/controller/l1-0-5", Token: 7, Holding: true, Kind: "candidate", Value: strings.Repeat("long ", 20), Priority: 5, Lease: 1},
			{Key: "etcdlock/controller/l2-0", Token: 8, Kind: "candidate", Value: "b", Lease: 2},
		}},
		{Name: "orders/日本", Prefix: "etcdlock/orders%2F%E6%97%A5%E6%9C%AC/", Holding: 1, Places: []etcdlock.Place{
			{Key: "etcdlock/orders%2F%E6%97%A5%E6%9C%AC/x1f-0", Token: 4711, Holding: true, Kind: "exclusive", Owner: owner(7), Value: "{}", Lease: 0x1f},
			{Key: "etcdlock/orders%2F%E6%97%A5%E6%9C%AC/x2f-0", Token: 4712, Kind: "exclusive", Owner: owner(8), Value: "{}", Lease: 0x2f},
			{Key: "etcdlock/orders%2F%E6%97%A5%E6%9C%AC/x3f-0", Token: 4713, Kind: "exclusive", Owner: owner(9), Value: "{}", Lease: 0x3f},
		}},
		{Name: "pool", Prefix: "etcdlock/pool/", Size: 3},
		{Name: "report\n", Prefix: "etcdlock/report%0A/", Holding: 1, Places: []etcdlock.Place{
			{Key: "etcdlock/report%0A/s1f-0", Token: 9, Holding: true, Kind: "shared", Owner: owner(1), Value: "{}", Lease: 0x1f},
		}},
		{Name: "theirs", Prefix: "etcdlock/theirs/", Holding: 1, Places: []etcdlock.Place{
			{Key: "etcdlock/theirs/1f", Token: 10, Holding: true, Kind: "exclusive", Value: "<another program's>", Lease: 0x1f},
		}},
	}
}

func printed(t *testing.T, format string, colour bool, queues []etcdlock.Queue) []byte {
	t.Helper()
	var b bytes.Buffer
	var all []status.Lock
	for _, q := range queues {
		all = append(all, status.Summarize(q))
	}
	require.NoError(t, printLocks(&b, format, all, time.Date(2026, 11, 29, 13, 30, 0, 400, time.UTC), colour))
	return b.Bytes()
}

func TestPrintedLists(t *testing.T) {
	for _, format := range []string{asTable, asWide, asJSON, asNames} {
		golden(t, "locks."+format, printed(t, format, false, locks()))
	}
	golden(t, "locks.colour", printed(t, asTable, true, locks()))
	require.Empty(t, printed(t, asTable, false, nil))
	var list []status.Lock
	require.NoError(t, json.Unmarshal(printed(t, asJSON, false, locks()), &list))
	require.Len(t, list, len(locks()))
}

func TestPatterns(t *testing.T) {
	for pattern, names := range map[string]struct{ fit, others []string }{
		"":             {[]string{""}, []string{"a"}},
		"*":            {[]string{"", "a", "a/b", "a\nb"}, nil},
		"orders/*":     {[]string{"orders/1", "orders/1/2"}, []string{"orders", "my orders/1"}},
		"a?c":          {[]string{"abc", "a/c", "aéc"}, []string{"ac", "abbc"}},
		"[a-c]x[!0-9]": {[]string{"axa", "cx/"}, []string{"dxa", "ax1", "x"}},
		"[]]":          {[]string{"]"}, []string{"[]]"}},
		`\*a.b`:        {[]string{"*a.b"}, []string{"xa.b", "*aXb"}},
		"a(b|c)+$":     {[]string{"a(b|c)+$"}, []string{"ab"}},
	} {
		g, err := newGlob(pattern)
		require.NoError(t, err, pattern)
		for _, name := range names.fit {
			require.True(t, g.matches(name), "%q %q", pattern, name)
			require.True(t, strings.HasPrefix(name, g.literal), "%q %q", pattern, name)
		}
		for _, name := range names.others {
			require.False(t, g.matches(name), "%q %q", pattern, name)
		}
	}
	for _, pattern := range []string{"[", "a[b", "[z-a]"} {
		_, err := newGlob(pattern)
		require.Equal(t, exitMistake, exitCode(err), pattern)
	}
}
