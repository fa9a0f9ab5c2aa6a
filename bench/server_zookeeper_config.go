package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// zookeeperMember is where a server listens: for clients, and, in an ensemble, for those
// that follow it and for votes.
type zookeeperMember struct{ client, quorum, election int }

func zookeeperMembers(n int) ([]zookeeperMember, error) {
	ports, err := freePorts(3 * n)
	if err != nil {
		return nil, err
	}
	all := make([]zookeeperMember, n)
	for i := range all {
		all[i] = zookeeperMember{ports[3*i], ports[3*i+1], ports[3*i+2]}
	}
	return all, nil
}

// writeZooKeeperConfig writes what the server of that index needs, and returns the path of
// its configuration. That is as in ZooKeeper's own sample, but for the number of connections
// from one address and, without fsync, for that.
func writeZooKeeperConfig(dir string, fsync bool, all []zookeeperMember, index int) (string, error) {
	var text strings.Builder
	fmt.Fprintf(&text, "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir=%s\n", dir)
	fmt.Fprintf(&text, "clientPortAddress=127.0.0.1\nclientPort=%d\nmaxClientCnxns=0\n", all[index].client)
	if !fsync {
		text.WriteString("forceSync=no\n")
	}
	if len(all) > 1 { // one alone would be no ensemble
		for i, m := range all {
			fmt.Fprintf(&text, "server.%d=127.0.0.1:%d:%d\n", i+1, m.quorum, m.election)
		}
		if err := os.WriteFile(filepath.Join(dir, "myid"), []byte(strconv.Itoa(index+1)), 0o600); err != nil {
			return "", err
		}
	}
	path := filepath.Join(dir, "zoo.cfg")
	return path, os.WriteFile(path, []byte(text.String()), 0o600)
}
