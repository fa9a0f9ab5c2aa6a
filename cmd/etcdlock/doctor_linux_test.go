package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/internal/testchild"
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

func TestDoctorFindsAnAddressThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, embedtest.WithSize(3))
	m := c.Members()
	m[2].Kill()
	r := prepare(t, []string{m[0].Endpoint(), m[1].Endpoint(), m[1].Endpoint()}, "doctor").start()
	require.Zero(t, r.code())
	require.Regexp(t, `WARN +endpoints +members announce addresses that do not answer: \S+: etcdctl member list`, r.out.String())
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
	lease, err := client.Grant(within(t), 24) // half of which is enough for the doctor
	require.NoError(t, err)
	_, err = client.Put(within(t), "etcdlock/n/k", "", withLease(lease.ID))
	require.NoError(t, err)
	eventually(t, "a lease that is due", func() bool {
		left, err := client.TimeToLive(within(t), lease.ID)
		return err == nil && left.TTL < 12
	})
	require.Contains(t, examined(t, c, 0, levelWarn), fmt.Sprintf("leases: lease %x of etcdlock/n/k was not renewed", int64(lease.ID)))
}

func TestDoctorFindsKeysThatAreNotTheLibrarys(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client := c.Client(t)
	put := func(key string, opts ...clientv3.OpOption) {
		_, err := client.Put(within(t), key, "", opts...)
		require.NoError(t, err)
	}
	require.Contains(t, examined(t, c, 0, levelOK), "keys: 0, all of kinds that are known")
	lease, err := client.Grant(within(t), 60)
	require.NoError(t, err)
	put("etcdlock/jobs/other", withLease(lease.ID))
	require.Contains(t, examined(t, c, 0, levelWarn), `keys: 1 key (etcdlock/jobs/other) is of a kind that is not known: other programs use the namespace "etcdlock": etcdctl get etcdlock/jobs/other`)
	put("etcdlock/jobs/stuck")
	require.Contains(t, examined(t, c, 0, levelWarn), "keys: 1 key (etcdlock/jobs/stuck) is of a kind that is not known and without a lease: "+
		"a lock below whose name one is waits until it is deleted: etcdctl del etcdlock/jobs/stuck")
}

func TestDoctorListsSemaphoresWithoutUsers(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	for _, name := range []string{"old", "new"} {
		require.Zero(t, prepare(t, c.Endpoints(), "run", "--limit", "2", "--slots", name, "true").start().code())
	}
	user := prepare(t, c.Endpoints(), "run", "--limit", "2", "--slots", "new").start()
	user.says("etcdlock/")
	found := examined(t, c, 0, levelOK)
	require.Contains(t, found, "keys: 1 of 2 semaphores have a size and no users now: old: etcdctl del --prefix etcdlock/old/!size/, if it is not needed any more")
	require.Contains(t, found, "all of kinds that are known")
}

// Every page but the last is full.
func TestDoctorReadsAllKeys(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	client := c.Client(t)
	for from := range 21 {
		var puts []clientv3.Op
		for i := range 100 {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("etcdlock/n%d/x%d-0", from, i), ""))
		}
		_, err := client.Txn(within(t)).Then(puts...).Commit()
		require.NoError(t, err)
	}
	require.Contains(t, examined(t, c, 0, levelOK), "keys: 2100, all of kinds that are known")
}

func TestDoctorFindsAnOldVersion(t *testing.T) {
	t.Parallel()
	endpoint := startOldEtcd(t)
	r := prepare(t, []string{endpoint}, "doctor").start()
	require.Zero(t, r.code())
	require.Regexp(t, `WARN +members +\S+ is version 3\.4\.\d+, which gets no fixes any more: upgrade it`, r.out.String())
	require.Regexp(t, `OK +permissions +a lock was taken and released`, r.out.String())
}

// startOldEtcd runs etcd 3.4 of a package, and skips the test if there is none.
func startOldEtcd(t *testing.T) (endpoint string) {
	t.Helper()
	version, err := exec.Command("etcd", "--version").Output()
	if err != nil || !strings.Contains(string(version), "etcd Version: 3.4.") {
		t.Skipf("no etcd 3.4 in the PATH (Debian 12: apt-get install etcd-server): %v", err)
	}
	dir := t.TempDir()
	const client, peer = "unix://etcd:1", "http://127.0.0.1:0"
	cmd := exec.Command("etcd", "--name=m", "--data-dir=data", "--initial-cluster=m="+peer,
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer)
	var log testchild.Output
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	endpoint = "unix://" + filepath.Join(dir, "etcd:1")
	eventually(t, "a socket", func() bool { _, err := os.Stat(filepath.Join(dir, "etcd:1")); return err == nil })
	return endpoint
}

func TestDoctorColoursLevelsOnATerminal(t *testing.T) {
	t.Parallel()
	colour, _ := onTerminal(t, "TERM=xterm NO_COLOR= $ETCDLOCK doctor")
	colour.says("\x1b[32mOK\x1b[0m")
	plain, _ := onTerminal(t, "TERM=xterm NO_COLOR=1 $ETCDLOCK doctor")
	plain.says("OK ")
	plain.code()
	require.NotContains(t, plain.out.String(), "\x1b")
}

func TestDoctorWithoutEtcdSaysSo(t *testing.T) {
	t.Parallel()
	r := prepare(t, []string{"127.0.0.1:1"}, "doctor", "--dial-timeout", "1s").start()
	require.Equal(t, 1, r.code())
	require.Contains(t, r.out.String(), "no endpoint answers")
}
