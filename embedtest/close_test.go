package embedtest_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

// closesSoon fails if Close takes longer than it promises, with room for a
// loaded machine.
func closesSoon(t *testing.T, c *embedtest.Cluster) {
	t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(3 * time.Second):
		require.FailNow(t, "Close hangs")
	}
}

func TestCloseTwiceIsHarmless(t *testing.T) {
	c, err := embedtest.Open()
	require.NoError(t, err)
	closesSoon(t, c)
	closesSoon(t, c)
}

func TestCloseNeedsNoQuorum(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3))
	c.Members()[0].Kill()
	c.Members()[1].Kill()
	closesSoon(t, c)
}

func TestCloseNeedsNoQuorumAfterRestartWithoutOne(t *testing.T) {
	c := embedtest.Start(t, embedtest.WithSize(3))
	for _, m := range c.Members() {
		m.Kill()
	}
	require.NoError(t, c.Members()[2].Restart())
	closesSoon(t, c)
}

func TestCloseDoesNotWaitForClients(t *testing.T) {
	c := embedtest.Start(t)
	client := c.Client(t)
	silent, link := c.Link(t)
	put(t, client, "k", "v")
	get(t, silent, "k")
	<-client.Watch(within(t, patience), "k", clientv3.WithCreatedNotify())

	ctx, cancel := context.WithCancel(context.Background())
	lost, held := c.LoseReply("Txn"), c.Hold("Put")
	answers := make(chan error, 3)
	go func() {
		_, err := client.Txn(ctx).Then(clientv3.OpPut("k", "lost")).Commit()
		answers <- err
	}()
	go func() {
		_, err := client.Put(ctx, "k", "held")
		answers <- err
	}()
	require.NoError(t, held.Wait(within(t, patience)))
	require.NoError(t, lost.Wait(within(t, patience)))
	link.Blackhole()
	go func() {
		_, err := silent.Put(ctx, "k", "vanished")
		answers <- err
	}()
	connection, err := net.Dial("unix", strings.TrimPrefix(c.Endpoints()[0], "unix://"))
	require.NoError(t, err)
	_, err = connection.Read(make([]byte, 1)) // accepted, and now awaited to speak
	require.NoError(t, err)

	closesSoon(t, c)

	cancel()
	require.NoError(t, connection.Close())
	for range cap(answers) {
		require.Error(t, <-answers)
	}
}

func TestClosedClusterStartsNothing(t *testing.T) {
	c := embedtest.Start(t)
	closesSoon(t, c)
	require.Error(t, c.Members()[0].Restart())
	_, _, err := c.NewLink()
	require.Error(t, err)
	require.Nil(t, c.Leader())
	_, err = c.WaitLeader(context.Background())
	require.Error(t, err)
}

func TestManyClustersRunInParallel(t *testing.T) {
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			c := embedtest.Start(t, embedtest.WithSize(1+2*(i%2)))
			client := c.Client(t)
			put(t, client, "k", fmt.Sprint(i))
			require.Equal(t, fmt.Sprint(i), get(t, client, "k"))
		})
	}
}

func TestDirKeepsDataForTheNextCluster(t *testing.T) {
	for _, size := range []int{1, 3} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			dir := t.TempDir()
			options := []embedtest.Option{embedtest.WithSize(size), embedtest.WithDir(dir), embedtest.WithFsync()}
			first := embedtest.Start(t, options...)
			put(t, first.Client(t), "k", "v")
			closesSoon(t, first)

			second := embedtest.Start(t, options...)
			require.Equal(t, "v", get(t, second.Client(t), "k"))
			closesSoon(t, second)

			_, err := embedtest.Open(embedtest.WithDir(dir), embedtest.WithSize(size+1))
			require.ErrorContains(t, err, "size")
		})
	}
}

func TestDataAndSocketsAreRemoved(t *testing.T) {
	temp, err := os.MkdirTemp("", "")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(temp)) })
	t.Setenv("TMPDIR", temp)
	c := embedtest.Start(t, embedtest.WithSize(3))
	closesSoon(t, c)
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestWrongSizeIsRefused(t *testing.T) {
	for _, size := range []int{-1, 0, 10} {
		_, err := embedtest.Open(embedtest.WithSize(size))
		require.Error(t, err)
	}
}

func TestRealTicksAllowOnlyEtcdsOwnLeases(t *testing.T) {
	for want, options := range map[int64][]embedtest.Option{1: nil, 2: {embedtest.WithRealTicks()}} {
		lease, err := embedtest.Start(t, options...).Client(t).Grant(within(t, patience), 1)
		require.NoError(t, err)
		require.Equal(t, want, lease.TTL)
	}
}

func TestFatalErrorSparesTheProcess(t *testing.T) {
	c := embedtest.Start(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Members()[0].Server().Logger().Fatal("beyond repair")
	}()
	<-ended
	require.Contains(t, c.Log(), "beyond repair")
}

// TestLogIsShownOnlyByFailures runs this test binary again, once for a test that
// passes and once for one that fails.
func TestLogIsShownOnlyByFailures(t *testing.T) {
	if mode := os.Getenv("EMBEDTEST_MODE"); mode != "" {
		c := embedtest.Start(t)
		put(t, c.Client(t), "k", "v")
		c.Members()[0].Kill()
		if mode == "fail" {
			t.Fail()
		}
		return
	}
	run := func(mode string) (string, error) {
		command := exec.Command(os.Args[0], "-test.run=^TestLogIsShownOnlyByFailures$")
		command.Env = append(os.Environ(), "EMBEDTEST_MODE="+mode)
		output, err := command.CombinedOutput()
		return string(output), err
	}
	output, err := run("pass")
	require.NoError(t, err)
	require.Equal(t, "PASS", strings.TrimSpace(strings.Split(output, "coverage:")[0]))
	output, err = run("fail")
	require.Error(t, err)
	require.Contains(t, output, "became leader")
}
