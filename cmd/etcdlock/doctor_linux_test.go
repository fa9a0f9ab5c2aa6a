package main

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcdlock/locks/embedtest"
)

// examined runs the doctor and returns what it found of a level, as "check: text: advice".
func examined(t *testing.T, c *embedtest.Cluster, code int, level string, args ...string) string {
	t.Helper()
	r := prepare(t, c.Endpoints(), append([]string{"doctor", "-o", "json"}, args...)...).start()
	require.Equal(t, code, r.code())
	var d diagnosisJSON
	require.NoError(t, json.Unmarshal([]byte(r.out.String()), &d))
	require.Equal(t, code == 0, d.OK)
	text := ""
	for _, f := range d.Findings {
		if f.Level == level {
			text += fmt.Sprintf("%s: %s: %s\n", f.Check, f.Text, f.Advice)
		}
	}
	return text
}

func TestDoctorFindsAMemberThatIsDown(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, embedtest.WithSize(3))
	require.Empty(t, examined(t, c, 0, levelFail))
	down := c.Members()[1]
	down.Kill()
	require.Contains(t, examined(t, c, 1, levelFail), "members: "+down.Endpoint()+" does not answer")

	one := prepare(t, []string{c.Members()[0].Endpoint()}, "doctor").start()
	require.Zero(t, one.code())
	require.Regexp(t, `WARN +endpoints +1 endpoints are given and there are 3 members: --endpoints `, one.out.String())
}

func TestDoctorFindsAnAlarm(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	require.NoError(t, c.RaiseAlarm(within(t), etcdserverpb.AlarmType_NOSPACE))
	require.Contains(t, examined(t, c, 1, levelFail), "alarms: NOSPACE at member")
}

func TestDoctorFindsThatNobodyCompacts(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	for range 20 {
		_, err := c.Client(t).Put(within(t), "k", "v")
		require.NoError(t, err)
	}
	require.Contains(t, examined(t, c, 0, levelWarn, "--history", "10"), "compaction: 21 revisions are kept: nobody compacts")
	require.NotEmpty(t, examined(t, c, 1, levelWarn, "--history", "10", "--strict"))
	_, err := c.Compact(within(t))
	require.NoError(t, err)
	require.Contains(t, examined(t, c, 0, levelOK, "--history", "10"), "compaction: 0 revisions are kept")
}

func TestDoctorFindsMissingPermissions(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, embedtest.WithAuth("secret", embedtest.User{
		Name: "reader", Password: "r", Grants: []embedtest.Grant{embedtest.Read("etcdlock/")},
	}))
	require.Contains(t, examined(t, c, 1, levelFail, "--user", "reader:r"),
		"etcdctl role grant-permission ROLE --prefix=true readwrite etcdlock/")
}

func TestDoctorFindsATTLBelowTwoElections(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, embedtest.WithRealTicks(), embedtest.WithConfig(func(cfg *embed.Config) { cfg.ElectionMs = 4000 }))
	require.Contains(t, examined(t, c, 0, levelWarn, "--ttl", "7"), "ttl: 7s is less than two elections")
	require.NotContains(t, examined(t, c, 0, levelWarn, "--ttl", "20"), "elections")
}

func TestDoctorFindsASlowDisk(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	c.Delay("Txn", 400*time.Millisecond)
	require.Contains(t, examined(t, c, 0, levelWarn, "--ttl", "9"), "latency: lock+unlock: p50")
}

func TestDoctorFindsAHolderThatDoesNotRenew(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client := c.Client(t)
	lease, err := client.Grant(within(t), 8)
	require.NoError(t, err)
	_, err = client.Put(within(t), "etcdlock/n/k", "", withLease(lease.ID))
	require.NoError(t, err)
	eventually(t, "a lease that is due", func() bool {
		left, err := client.TimeToLive(within(t), lease.ID)
		return err == nil && left.TTL < 4
	})
	require.Contains(t, examined(t, c, 0, levelWarn), fmt.Sprintf("leases: lease %x of etcdlock/n/k was not renewed", int64(lease.ID)))
}

func TestDoctorWithoutEtcdSaysSo(t *testing.T) {
	t.Parallel()
	r := prepare(t, []string{"127.0.0.1:1"}, "doctor", "--dial-timeout", "1s").start()
	require.Equal(t, 1, r.code())
	require.Contains(t, r.out.String(), "no endpoint answers")
}
