package embedtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// addressFile records where the members listen for their peers, because their
// data name these addresses: a later cluster on the same directory needs them.
const addressFile = "peers"

const anyPort = "127.0.0.1:0"

// lockFile is locked, while a cluster uses the directory, by its file descriptor: the
// lock excludes clusters of the same process too, and ends with the process.
const lockFile = "lock"

func (c *Cluster) lockDir() (err error) {
	c.lock, err = fileutil.TryLockFile(filepath.Join(c.dataDir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return fmt.Errorf("embedtest: another cluster uses %s", c.dataDir)
	}
	if err != nil {
		return fmt.Errorf("embedtest: %w", err)
	}
	return nil
}

// peerAddresses returns the members' names and addresses, in turn.
func peerAddresses(dataDir string, size int) ([][2]string, error) {
	text, err := os.ReadFile(filepath.Join(dataDir, addressFile))
	if errors.Is(err, fs.ErrNotExist) {
		var addresses [][2]string
		for i := range size {
			addresses = append(addresses, [2]string{fmt.Sprintf("m%d", i), anyPort})
		}
		return addresses, nil
	}
	if err != nil {
		return nil, fmt.Errorf("embedtest: %w", err)
	}
	var addresses [][2]string
	for line := range strings.Lines(string(text)) {
		name, address, _ := strings.Cut(strings.TrimSpace(line), " ")
		addresses = append(addresses, [2]string{name, address})
	}
	if len(addresses) != size {
		return nil, fmt.Errorf("embedtest: %s holds a cluster of size %d, not %d", dataDir, len(addresses), size)
	}
	return addresses, nil
}

func (c *Cluster) recordPeerAddresses() error {
	var text strings.Builder
	for _, m := range c.Members() {
		fmt.Fprintln(&text, m.name, strings.TrimPrefix(m.peers.url(), "http://"))
	}
	if err := os.WriteFile(filepath.Join(c.dataDir, addressFile), []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("embedtest: %w", err)
	}
	return nil
}
