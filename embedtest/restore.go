package embedtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"go.uber.org/zap"

	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

// Snapshot is a copy of a cluster's data at one revision: keys, leases, users. It
// stays in memory and outlives the cluster.
type Snapshot struct{ database []byte }

// Snapshot copies the data, with everything that was answered before, for a later
// [Cluster.Restore].
func (c *Cluster) Snapshot(ctx context.Context) (*Snapshot, error) {
	server, err := c.leaderServer(ctx)
	if err != nil {
		return nil, fmt.Errorf("embedtest: snapshot: %w", err)
	}
	if err := server.LinearizableReadNotify(ctx); err != nil {
		return nil, fmt.Errorf("embedtest: snapshot: %w", err)
	}
	reader := server.Backend().Snapshot()
	defer func() { _ = reader.Close() }()
	var database bytes.Buffer
	if _, err := reader.WriteTo(&database); err != nil {
		return nil, fmt.Errorf("embedtest: snapshot: %w", err)
	}
	return &Snapshot{database: database.Bytes()}, nil
}

// RestoreOption changes what [Cluster.Restore] and [Cluster.Wipe] do.
type RestoreOption interface{ applyToRestore(*Cluster) }

type restoreOptionFunc func(*Cluster)

func (f restoreOptionFunc) applyToRestore(c *Cluster) { f(c) }

// NewClusterID gives the cluster another ID, as a restore with another
// --initial-cluster-token does. The default is the same ID, so that only the lower
// revision shows that the data is older.
func NewClusterID() RestoreOption {
	return restoreOptionFunc(func(c *Cluster) { c.generation++ })
}

// Restore kills all members, replaces their data by the snapshot's, and starts them
// on the addresses that they had, as an operator does after a disaster. Everything
// written since the snapshot is gone, and the revision continues from the
// snapshot's. Leases in it begin their TTL anew. The snapshot may be another
// cluster's.
//
// When it returns, all members serve, those included that were down, and nothing is
// isolated. Faults stay in force, links too; connections are not restored. After an
// error some members may be down and without data; Restore may be called again.
func (c *Cluster) Restore(ctx context.Context, s *Snapshot, opts ...RestoreOption) error {
	return c.replaceData(ctx, s.database, opts)
}

// Wipe is [Cluster.Restore] with an empty database: the cluster begins anew at
// revision 1. With [WithAuth], its users are there again.
func (c *Cluster) Wipe(ctx context.Context, opts ...RestoreOption) error {
	return c.replaceData(ctx, nil, opts)
}

func (c *Cluster) replaceData(ctx context.Context, database []byte, opts []RestoreOption) error {
	c.reconfiguring.Lock()
	defer c.reconfiguring.Unlock()
	if err := c.relaunch(database, opts); err != nil {
		return fmt.Errorf("embedtest: replace the data: %w", err)
	}
	return c.awaitStarted(ctx)
}

// relaunch holds every member's lifecycle, so that none starts on old data.
func (c *Cluster) relaunch(database []byte, opts []RestoreOption) error {
	members := c.Members()
	var ends sync.WaitGroup
	for _, m := range members {
		m.lifecycle.Lock()
		defer m.lifecycle.Unlock()
		if p := m.process.Load(); p != nil {
			ends.Go(func() { m.end(p) })
		}
	}
	ends.Wait()
	for _, o := range opts {
		o.applyToRestore(c)
	}
	for _, m := range members {
		m.Heal()
		if err := contain(func() error { return c.writeData(m, database) }); err != nil {
			return err
		}
	}
	for _, m := range members {
		if err := m.launchLocked(); err != nil {
			return err
		}
	}
	return nil
}

// writeData gives the member a database without a log. etcd then starts a new
// cluster on it, if it believes that nothing of its new log has been applied.
func (c *Cluster) writeData(m *Member, database []byte) error {
	dir := c.memberDir(m)
	if err := os.RemoveAll(dir); err != nil || database == nil {
		return err
	}
	path := filepath.Join(dir, "member", "snap", "db")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(path, database, 0o600); err != nil {
		return err
	}
	cfg := backend.DefaultBackendConfig(zap.NewNop())
	cfg.Path, cfg.UnsafeNoFsync = path, !c.settings.fsync
	b := backend.New(cfg)
	defer func() { _ = b.Close() }()
	if err := schema.NewMembershipBackend(cfg.Logger, b).TrimMembershipFromBackend(); err != nil {
		return err
	}
	tx := b.BatchTx()
	tx.LockOutsideApply()
	defer tx.Unlock()
	tx.UnsafeDelete(schema.Meta, schema.MetaConsistentIndexKeyName)
	tx.UnsafeDelete(schema.Meta, schema.MetaTermKeyName)
	return nil
}
