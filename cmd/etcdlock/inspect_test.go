package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/status"
)

// golden compares with a file, which ETCDLOCK_TEST_UPDATE=1 writes anew.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if os.Getenv("ETCDLOCK_TEST_UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, got, 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

var sample = status.Queue{
	Name: "job", Prefix: "etcdlock/job/", Size: 3,
	Holders: []status.Place{
		{
			Key: "etcdlock/job/p1-0", Token: 41, Kind: "permit", Host: "a", PID: 7, Program: "backup", Label: "nightly\x1b[2J",
			Since: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC), Weight: 2, Lease: "1f", TTL: 19,
		},
		{Key: "etcdlock/job/2f", Token: 42, Kind: "exclusive", Value: "<another program's>", Lease: "2f"},
	},
	Waiters: []status.Place{{
		Key: "etcdlock/job/c3-0", Token: 43, Kind: "candidate", Value: "b", Priority: 5, Lease: "3f", TTL: 3,
	}},
}

func TestPrintedQueues(t *testing.T) {
	now := time.Date(2026, 11, 29, 13, 30, 0, 400, time.UTC)
	for _, format := range []string{asTable, asWide, asJSON, asNames} {
		var b bytes.Buffer
		require.NoError(t, printQueue(&b, format, sample, now))
		golden(t, "queue."+format, b.Bytes())
	}
	var b bytes.Buffer
	require.NoError(t, printQueue(&b, asTable, describeNothing(), now))
	golden(t, "free.table", b.Bytes())
}

func describeNothing() status.Queue { return status.Queue{Name: "job", Prefix: "etcdlock/job/"} }
