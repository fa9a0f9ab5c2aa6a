package embedtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	"go.uber.org/zap"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
)

// errFatal stands for an error that etcd takes for fatal. The log says which.
var errFatal = errors.New("fatal error, see the log")

// contain runs f and makes errors of what would end the process or the caller's
// goroutine: a panic, a fault in mapped memory, a fatal entry of the log.
func contain(f func() error) error {
	err := errFatal // unless f returns
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("panic: %v", r)
			}
		}()
		debug.SetPanicOnFault(true) // of a file that is shorter than it says
		err = f()
	}()
	<-ended
	return err
}

// startEtcd looks at the data first. etcd opens its database in a goroutine of its
// own, where a panic ends the process, and whatever it panics about later leaves the
// database open.
func startEtcd(cfg *embed.Config) (etcd *embed.Etcd, err error) {
	err = contain(func() error {
		applied, err := checkDatabase(filepath.Join(cfg.Dir, "member", "snap", "db"))
		if err != nil {
			return fmt.Errorf("database: %w", err)
		}
		if err := checkLog(filepath.Join(cfg.Dir, "member", "wal"), applied); err != nil {
			return fmt.Errorf("log: %w", err)
		}
		etcd, err = embed.StartEtcd(cfg)
		return err
	})
	return etcd, err
}

// checkDatabase reads all of the database, if there is one. It returns the index of
// the last entry of the log that has been applied to it.
func checkDatabase(path string) (applied uint64, err error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0) // as etcd will
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	info, err := file.Stat()
	if err = errors.Join(err, file.Close()); err != nil || info.Size() == 0 { // an empty one is new
		return 0, err
	}
	db, err := bbolt.Open(path, 0, &bbolt.Options{ReadOnly: true, Timeout: time.Nanosecond})
	if err != nil {
		return 0, err
	}
	tx, err := db.Begin(false)
	if err != nil {
		return 0, errors.Join(err, db.Close())
	}
	// Both have to be closed after a panic too.
	defer func() { _ = db.Close() }()
	defer func() { _ = tx.Rollback() }()
	if size := tx.Size(); size > info.Size() {
		return 0, fmt.Errorf("%d bytes are missing at the end", size-info.Size())
	}
	err = tx.ForEach(func(_ []byte, bucket *bbolt.Bucket) error {
		return bucket.ForEach(func(_, _ []byte) error { return nil })
	})
	if err != nil {
		return 0, err
	}
	if meta := tx.Bucket(schema.Meta.Name()); meta != nil {
		if index := meta.Get(schema.MetaConsistentIndexKeyName); len(index) > 0 {
			applied = binary.BigEndian.Uint64(index)
		}
	}
	return applied, nil
}

// checkLog reads all of the log, which has to have every entry that has been applied.
// An end that is torn is no error: etcd repairs it.
func checkLog(dir string, applied uint64) error {
	if !wal.Exist(dir) {
		if applied > 0 {
			return errors.New("it is missing")
		}
		return nil
	}
	snapshots, err := wal.ValidSnapshotEntries(zap.NewNop(), dir)
	if err != nil {
		return err
	}
	if len(snapshots) == 0 {
		return wal.ErrSnapshotNotFound
	}
	snapshot := snapshots[len(snapshots)-1]
	log, err := wal.OpenForRead(zap.NewNop(), dir, snapshot)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	_, _, entries, err := log.ReadAll()
	if err != nil {
		return err
	}
	last := snapshot.GetIndex()
	if len(entries) > 0 {
		last = entries[len(entries)-1].GetIndex()
	}
	if last < applied {
		return fmt.Errorf("it ends at entry %d, but %d have been applied", last, applied)
	}
	return nil
}
