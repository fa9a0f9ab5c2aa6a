package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
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

func TestDoctorJudgesAMember(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		change func(*clientv3.StatusResponse)
		level  string
		says   string
	}{
		{func(*clientv3.StatusResponse) {}, "", ""},
		{func(s *clientv3.StatusResponse) { s.Version = "3.3.9" }, levelFail, "3.4 is needed"},
		{func(s *clientv3.StatusResponse) { s.Version = "3.4.23" }, levelWarn, "gets no fixes any more"},
		{func(s *clientv3.StatusResponse) { s.Version = "x" }, levelWarn, "not known"},
		{func(s *clientv3.StatusResponse) { s.IsLearner = true }, levelWarn, "learner"},
		{func(s *clientv3.StatusResponse) { s.Leader = 0 }, levelFail, "knows no leader"},
		{func(s *clientv3.StatusResponse) { s.DbSize = 81 * mib }, levelWarn, "81 of 100 MiB"},
		{func(s *clientv3.StatusResponse) { s.DbSizeQuota, s.DbSize = 0, 200*mib }, levelWarn, "200 MiB, of which 9 are in use"},
	} {
		status := &clientv3.StatusResponse{Version: "3.6.1", Leader: 1, DbSize: 10 * mib, DbSizeInUse: 9 * mib, DbSizeQuota: 100 * mib}
		c.change(status)
		d := doctor{}
		d.member("here", status)
		if c.level == "" {
			require.Empty(t, d.findings)
			continue
		}
		require.Len(t, d.findings, 1, c.says)
		require.Equal(t, c.level, d.findings[0].Level)
		require.Contains(t, d.findings[0].Text, c.says)
	}
}

func TestDoctorComparesMembers(t *testing.T) {
	member := func(leader, index uint64) *clientv3.StatusResponse {
		return &clientv3.StatusResponse{Header: &etcdserverpb.ResponseHeader{MemberId: index}, Version: "3.6.1", Leader: leader, RaftIndex: index}
	}
	for _, c := range []struct {
		up    []*clientv3.StatusResponse
		level string
		says  string
	}{
		{[]*clientv3.StatusResponse{member(1, 5000), member(1, 4500)}, levelOK, "one leader"},
		{[]*clientv3.StatusResponse{member(1, 5000), member(2, 5000)}, levelWarn, "different leaders"},
		{[]*clientv3.StatusResponse{member(1, 0x5000), member(1, 0x100), member(1, 0x4fff)}, levelWarn, "member 100 is 20224 entries behind"},
	} {
		d := doctor{client: clientv3.NewCtxClient(context.Background())}
		d.together(c.up)
		require.Len(t, d.findings, 1, c.says)
		require.Equal(t, c.level, d.findings[0].Level)
		require.Contains(t, d.findings[0].Text, c.says)
	}
}

func TestDoctorKnowsTheKeysOfTheLibrary(t *testing.T) {
	for _, c := range []struct {
		key   string
		known bool
	}{
		{"a%2Fb/x7af1-0", true}, {"a/s7af1-1", true}, {"a/p7af1-0-3", true}, {"a/l7af1-0", true}, {"a/l7af1-0-1", true},
		{"a/!size/3-3", true}, {"a!/slot/2/x7af1-0", true}, {"!/epoch/7af1", true}, {"a/!/epoch/7af1", true},
		{"a/7af1", false}, {"a/y7af1-0", false}, {"a/x7af1", false}, {"a/b/x7af1-0", false}, {"a", false}, {"a/x7af1-0-1-2", false},
		{"a/!size/3", false}, {"a!/slot/x/x7af1-0", false}, {"a/", false},
	} {
		found := &contents{leases: map[int64]string{}, sizes: map[string]bool{}}
		found.add("name/space", &mvccpb.KeyValue{Key: []byte("name/space/" + c.key), Lease: 1})
		require.Equal(t, c.known, len(found.unknown) == 0, c.key)
		require.Empty(t, found.forever)
	}
}
