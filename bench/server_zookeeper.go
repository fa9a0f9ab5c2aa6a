package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const zookeeperName = "zookeeper, fsync"

// zookeeperServer is a standalone server on a port of the loopback interface.
type zookeeperServer struct {
	*process
	address address
}

// startZooKeeper runs the server from the jars of a classpath, as the scripts of packages
// differ from one to the next.
func startZooKeeper(ctx context.Context, classpath string) (Server, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("java: %w (%w)", errAbsent, err)
	}
	if jars := filepath.SplitList(classpath); len(jars) == 0 || !exists(jars[0]) {
		return nil, fmt.Errorf("zookeeper: %w (no file %q; see -zookeeper)", errAbsent, classpath)
	}
	port, err := freePort()
	if err != nil {
		return nil, fmt.Errorf("find a port for zookeeper: %w", err)
	}
	p, err := startProcess(func(dir string) (*exec.Cmd, error) {
		config := filepath.Join(dir, "zoo.cfg")
		// Its defaults, but for the number of connections from one address.
		text := fmt.Sprintf("tickTime=2000\ndataDir=%s\nclientPortAddress=127.0.0.1\nclientPort=%d\nmaxClientCnxns=0\n", dir, port)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("write zookeeper's configuration: %w", err)
		}
		return exec.Command(java, "-Xmx1g", "-Dzookeeper.admin.enableServer=false", "-Dzookeeper.jmx.log4j.disable=true",
			"-cp", classpath, "org.apache.zookeeper.server.quorum.QuorumPeerMain", config), nil
	})
	if err != nil {
		return nil, err
	}
	s := &zookeeperServer{p, address{"tcp", fmt.Sprintf("127.0.0.1:%d", port)}}
	err = p.await(ctx, func(ctx context.Context) error {
		probe := zkClient{address: s.address}
		defer probe.Close()
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		_, err := probe.Session(ctx, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	return s, nil
}

func (s *zookeeperServer) Name() string     { return zookeeperName }
func (s *zookeeperServer) Backend() Backend { return ZooKeeper }

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}

// freePort may be taken by somebody else before it is used; then zookeeper exits and is
// reported absent.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}
