package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrintedLeader(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, printJSON(&b, leaderJSON{Name: "b", Key: "etcdlock/e/c1-0", Token: 9, Self: true}))
	require.NoError(t, printJSON(&b, leaderJSON{}))
	golden(t, "leader.json", b.Bytes())
}
