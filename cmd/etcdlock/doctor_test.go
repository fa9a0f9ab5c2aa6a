package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPrintedDiagnosis(t *testing.T) {
	d := doctor{}
	d.add(levelOK, "members", "", "%d of %d answer", 3, 3)
	d.add(levelFail, "permissions", "etcdctl role grant-permission ROLE", "locks are refused")
	for _, format := range []string{asTable, asJSON} {
		var b bytes.Buffer
		require.NoError(t, printDiagnosis(&b, format, diagnosisJSON{OK: d.well(false), Findings: d.findings}))
		golden(t, "diagnosis."+format, b.Bytes())
	}
}

func TestStrictTurnsWarningsIntoFailures(t *testing.T) {
	d := doctor{}
	require.True(t, d.well(true))
	d.add(levelWarn, "x", "", "y")
	require.True(t, d.well(false))
	require.False(t, d.well(true))
	d.add(levelFail, "x", "", "y")
	require.False(t, d.well(false))
}
