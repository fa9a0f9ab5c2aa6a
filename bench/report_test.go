package main

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReport(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "dir")
	require.NoError(t, fixedReport().write(dir))
	data, err := os.ReadFile(filepath.Join(dir, "report.md"))
	require.NoError(t, err)
	text := string(data)
	for _, want := range []string{
		"| system | a fixed one |",
		"| the run took | 1m30s |",
		"Absent: zookeeper: not installed",
		"## rates\n\nAbout rates.",
		"![Grants, etcd, 1 member](rates-etcd-1-member.svg)",
		"| contenders | peer | server | grants/s ↑ | × | p99, ms ↓ |\n|---|---|---|---|---|---|\n",
		"| 2 | etcdlock | etcd, 1 member | 200 (100–300) | 1.00 | 2.00 (1.00–3.00) |\n",
		"| 2 | theirs <&> | etcd, 1 member | 50.0 | 0.250 | — |\n",
		"| 2 | theirs <&> | etcd, 3 members | 10.0 | 0.500 | 1.00 |\n",
		"| 2 | poller | other | 800 | 4.00 | 1.00 |\n",
		"| 2 | keeper | ensemble | 30.0 | 1.50 | 1.00 |\n",
		"| 8 | theirs <&> | etcd, 1 member | not finished in 1m0s | | |\n",
		"| peer | server | took, s ↓ | × |\n|---|---|---|---|\n| etcdlock | etcd, 1 member | 0.500 | 1.00 | after 1 rounds: lock: lost |\n",
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "stopped")

	f, err := os.Open(filepath.Join(dir, "samples.csv"))
	require.NoError(t, err)
	defer f.Close()
	samples, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	require.Contains(t, samples, []string{"rates", "2", "etcdlock", "etcd, 1 member", "2", "grants/s", "300"})
	require.Len(t, samples, 1+2*9+1)
}

func TestAStoppedRunSaysSo(t *testing.T) {
	r := fixedReport()
	r.stopped, r.rows = true, nil
	require.Contains(t, r.markdown(), "stopped before its end")
}
