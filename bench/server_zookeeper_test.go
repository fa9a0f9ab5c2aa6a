package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestThreeZooKeepersAreAnEnsembleThatSharesTheClients(t *testing.T) {
	o, err := parseOptions(nil, t.Output())
	require.NoError(t, err)
	server, err := startZooKeeper(t.Context(), layout{members: 3}, o.zookeeper)
	if errors.Is(err, errAbsent) {
		t.Skip(err)
	}
	require.NoError(t, err)
	defer server.Close()
	require.Equal(t, "zookeeper, 3 members, no fsync", server.Name())

	s := server.(*zookeeperServer)
	modes := make(map[string]int)
	for _, a := range s.addresses {
		modes[mode(t, a)]++
	}
	require.Equal(t, map[string]int{"leader": 1, "follower": 2}, modes)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	clients := make(map[address]int)
	for range 6 {
		client, err := zookeeperPeer().Connect(ctx, server, false)
		require.NoError(t, err)
		defer client.Close()
		_, err = client.Session(ctx, 0)
		require.NoError(t, err)
		clients[client.(*zkClient).address]++
	}
	for _, a := range s.addresses {
		require.Equal(t, 2, clients[a])
	}

	require.NoError(t, server.Close())
	for _, p := range s.processes {
		require.NoDirExists(t, p.dir)
		<-p.exited
	}
}

// mode asks a server what it is. The client library's own function does not understand the
// answers of newer servers.
func mode(t *testing.T, a address) string {
	t.Helper()
	conn, err := net.Dial(a.network, a.address)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = io.WriteString(conn, "srvr")
	require.NoError(t, err)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	_, after, found := strings.Cut(string(answer), "Mode: ")
	require.True(t, found, "%s", answer)
	mode, _, _ := strings.Cut(after, "\n")
	return mode
}

// One exits at once, and the others never answer.
func TestAnEnsembleThatLacksAServerIsAbsentAndLeavesNothing(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("runs a shell script")
	}
	bin, tmp := t.TempDir(), t.TempDir()
	script := "#!/bin/sh\nif [ \"$(cat myid)\" = 2 ]; then echo broken >&2; exit 1; fi\nexec sleep 600\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "java"), []byte(script), 0o700))
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	t.Setenv("TMPDIR", tmp)

	_, err := startZooKeeper(t.Context(), layout{members: 3, fsync: true}, filepath.Join(bin, "java"))
	require.EqualError(t, err, "zookeeper: server 2 of 3: it exited: broken")
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	require.Empty(t, left, "servers' directories, which go when they have ended")
}

func TestZooKeepersConfiguration(t *testing.T) {
	dir := t.TempDir()
	all := []zookeeperMember{{1, 2, 3}, {4, 5, 6}, {7, 8, 9}}
	read := func(path string, err error) string {
		t.Helper()
		require.NoError(t, err)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(text)
	}
	alone := read(writeZooKeeperConfig(dir, true, all[:1], 0))
	require.Contains(t, alone, "\nclientPort=1\n")
	require.NotContains(t, alone, "server.")
	require.NotContains(t, alone, "forceSync")

	second := read(writeZooKeeperConfig(dir, false, all, 1))
	require.Contains(t, second, "\nclientPort=4\n")
	require.Contains(t, second, "\nforceSync=no\nserver.1=127.0.0.1:2:3\nserver.2=127.0.0.1:5:6\nserver.3=127.0.0.1:8:9\n")
	require.Equal(t, "2", read(filepath.Join(dir, "myid"), nil))
}
