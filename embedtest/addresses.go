package embedtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// addressFile records where the members listen for their peers, because their
// data name these addresses: a later cluster on the same directory needs them.
const addressFile = "peers"

func peerAddresses(dataDir string, size int) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(dataDir, addressFile))
	if errors.Is(err, fs.ErrNotExist) {
		addresses := make([]string, size)
		for i := range addresses {
			addresses[i] = "127.0.0.1:0"
		}
		return addresses, nil
	}
	if err != nil {
		return nil, fmt.Errorf("embedtest: %w", err)
	}
	addresses := strings.Fields(string(text))
	if len(addresses) != size {
		return nil, fmt.Errorf("embedtest: %s holds a cluster of size %d, not %d", dataDir, len(addresses), size)
	}
	return addresses, nil
}

func (c *Cluster) recordPeerAddresses() error {
	var text strings.Builder
	for _, m := range c.members {
		fmt.Fprintln(&text, strings.TrimPrefix(m.peers.url(), "http://"))
	}
	if err := os.WriteFile(filepath.Join(c.dataDir, addressFile), []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("embedtest: %w", err)
	}
	return nil
}
