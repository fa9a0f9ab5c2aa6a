package embedtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

const applyTimeout = time.Second

// Compact discards every revision before the current one, physically, and
// returns the revision. Watches that start below it are cancelled with
// ErrCompacted; those that are up to date are not disturbed.
func (c *Cluster) Compact(ctx context.Context) (int64, error) {
	server, err := c.leaderServer(ctx)
	if err != nil {
		return 0, fmt.Errorf("embedtest: compact: %w", err)
	}
	if err := server.LinearizableReadNotify(ctx); err != nil {
		return 0, fmt.Errorf("embedtest: compact: %w", err)
	}
	revision := server.KV().Rev() // not a read of a key, for which etcd may demand a user
	_, err = server.Compact(ctx, &etcdserverpb.CompactionRequest{Revision: revision, Physical: true})
	if err != nil && !errors.Is(err, mvcc.ErrCompacted) && !errors.Is(err, rpctypes.ErrCompacted) {
		return 0, fmt.Errorf("embedtest: compact: %w", err)
	}
	return revision, nil
}

// AppliedIndex returns the highest raft index that a running member has applied.
// The difference between two readings is the number of raft entries written in
// between: what an operation costs the cluster. It includes every request that was
// answered before. Elections, restarts and expiring leases write entries too; on a
// cluster at rest it stands still.
func (c *Cluster) AppliedIndex() uint64 {
	ctx, cancel := context.WithTimeout(context.Background(), applyTimeout)
	defer cancel()
	var highest uint64
	for _, m := range c.Members() {
		server := m.Server()
		if server == nil {
			continue
		}
		// etcd answers a request a moment before it counts it as applied.
		committed := server.CommittedIndex()
		_ = c.poll(ctx, func() bool { return server.AppliedIndex() >= committed })
		highest = max(highest, server.AppliedIndex())
	}
	return highest
}
