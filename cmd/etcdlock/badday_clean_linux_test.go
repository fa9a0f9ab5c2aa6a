package main

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

// leftovers returns the keys and leases of a cluster.
func leftovers(t *testing.T, client *clientv3.Client) (left []string) {
	t.Helper()
	keys, err := client.Get(within(t), "", clientv3.WithFromKey())
	require.NoError(t, err)
	for _, kv := range keys.Kvs {
		left = append(left, string(kv.Key))
	}
	leases, err := client.Leases(within(t))
	require.NoError(t, err)
	for range leases.Leases {
		left = append(left, "a lease")
	}
	return left
}

func TestNothingIsLeftInEtcd(t *testing.T) {
	t.Parallel()
	executable := filepath.Join(t.TempDir(), "executable")
	writeExecutable(t, executable, "text")
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	for _, c := range []struct {
		what string
		args []string
		code int
	}{
		{"a success", []string{"run", "n", "true"}, 0},
		{"several locks", []string{"run", "--also", "m", "n", "true"}, 0},
		{"a failure", []string{"run", "n", "false"}, 1},
		{"a command that ends by a signal", []string{"run", "n", "sh", "-c", "kill -9 $$"}, 137},
		{"a command that cannot be executed", []string{"run", "n", executable}, 126},
		{"a command that is not there", []string{"run", "n", "./nosuch"}, 127},
		{"a name that is not valid", []string{"run", "--also", "", "n", "true"}, 64},
		{"a nested run", []string{"run", "n", binary, "run", "n", "true"}, 64},
		{"a loss", []string{"run", "n", binary, "release", "-y", "n"}, 124},
		{"a term", []string{"elect", "n", "true"}, 0},
		{"a term that is lost", []string{"elect", "n", binary, "release", "-y", "n"}, 0},
		{"a doctor", []string{"doctor"}, 0},
	} {
		r := prepare(t, cluster.Endpoints(), c.args...).start()
		require.Equal(t, c.code, r.code(), c.what)
		require.Empty(t, leftovers(t, client), c.what)
	}
}

func TestNothingIsLeftInEtcdByWaiters(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	holder := prepare(t, cluster.Endpoints(), "run", "n").start()
	holder.says("etcdlock/n/")
	held := leftovers(t, client)
	require.Len(t, held, 2, "a key and a lease")
	for _, args := range [][]string{{"run", "-n", "n", "true"}, {"run", "-w", "0.1", "n", "true"}, {"run", "-w", "0.1", "--also", "m", "n", "true"}} {
		require.Equal(t, 75, prepare(t, cluster.Endpoints(), args...).start().code())
		require.Equal(t, held, leftovers(t, client), args)
	}
	for _, command := range []string{"run", "elect"} {
		waiter := prepare(t, cluster.Endpoints(), command, "n", "true").start()
		eventually(t, "a waiter", func() bool { return len(leftovers(t, client)) == len(held)+2 })
		waiter.signal(syscall.SIGTERM)
		require.Equal(t, 143, waiter.code())
		require.Equal(t, held, leftovers(t, client), command)
	}
	holder.signal(syscall.SIGTERM)
	require.Zero(t, holder.code())
	require.Empty(t, leftovers(t, client))
}
