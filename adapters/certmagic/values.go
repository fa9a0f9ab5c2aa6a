package certmagiclock

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/caddyserver/certmagic"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

const (
	maxValue = 1 << 20 // etcd refuses requests above 1.5 MiB by default
	pageSize = 1000    // keys in an answer to List
)

// values are the values of a storage in etcd. The value of a key is the time of the Store in RFC 3339, a line feed, and
// what was stored. A directory exists as long as there is a key below it.
type values struct {
	certmagic.Locker // none: values are used within locked only

	client *clientv3.Client
	prefix string // ends in a slash
}

// String names the storage in logs.
func (v *values) String() string { return "etcd:" + v.prefix }

// clean takes slashes at both ends, and steps up, out of a key.
func clean(key string) string { return strings.Trim(path.Clean("/"+key), "/") }

// file is the key in etcd of a value.
func (v *values) file(key string) string { return v.prefix + clean(key) }

// directory is what the keys in etcd of all values below a key begin with.
func (v *values) directory(key string) string {
	if key = clean(key); key != "" {
		key += "/"
	}
	return v.prefix + key
}

// Store puts value at key.
func (v *values) Store(ctx context.Context, key string, value []byte) error {
	if clean(key) == "" {
		return &fs.PathError{Op: "store", Path: key, Err: fs.ErrInvalid}
	}
	if len(value) > maxValue {
		return fmt.Errorf("certmagiclock: store %q: %w: %d bytes, at most %d", key, etcdlock.ErrTooLarge, len(value), maxValue)
	}
	file := v.file(key)
	content := time.Now().UTC().Format(time.RFC3339Nano) + "\n" + string(value)
	now, err := v.revision(ctx, file)
	if err != nil {
		return failed("store", key, err)
	}
	return failed("store", key, v.try(ctx, func(ctx context.Context) error {
		// An earlier attempt without an answer may arrive after a later Store of another process. If the key has been
		// written since this Store began, then by such an attempt, or at the same time as this Store, which then counts
		// as the earlier of the two.
		_, err := v.client.Txn(ctx).If(unchangedSince(file, now)).Then(clientv3.OpPut(file, content)).Commit()
		return err
	}))
}

// Delete deletes the value at key and all below it.
func (v *values) Delete(ctx context.Context, key string) error {
	file, directory := v.file(key), v.directory(key)
	below := clientv3.WithPrefix()
	return failed("delete", key, v.try(ctx, func(ctx context.Context) error {
		for {
			now, err := v.revision(ctx, file)
			if err != nil {
				return err
			}
			// As in Store. A key that was stored meanwhile may be deleted as well, by another round.
			answer, err := v.client.Txn(ctx).
				If(unchangedSince(file, now), unchangedSince(directory, now).WithPrefix()).
				Then(clientv3.OpDelete(file), clientv3.OpDelete(directory, below)).Commit()
			if err != nil || answer.Succeeded {
				return err
			}
		}
	}))
}

// revision returns the present revision of etcd.
func (v *values) revision(ctx context.Context, file string) (now int64, err error) {
	err = v.try(ctx, func(ctx context.Context) error {
		answer, err := v.client.Get(ctx, file, clientv3.WithCountOnly())
		if err == nil {
			now = answer.Header.Revision
		}
		return err
	})
	return now, err
}

// unchangedSince holds if the key was not written after revision. It says nothing of deletions.
func unchangedSince(key string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(key), "<", revision+1)
}

// Load returns the value at key.
func (v *values) Load(ctx context.Context, key string) ([]byte, error) {
	content, found, _, err := v.look(ctx, key)
	if err == nil && !found {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, failed("load", key, err)
	}
	_, value, err := parse(content)
	return value, failed("load", key, err)
}

// Exists reports whether there is a value at key or below it.
func (v *values) Exists(ctx context.Context, key string) bool {
	_, found, directory, err := v.look(ctx, key)
	return err == nil && (found || directory)
}

// Stat returns information about key.
func (v *values) Stat(ctx context.Context, key string) (certmagic.KeyInfo, error) {
	content, found, directory, err := v.look(ctx, key)
	switch {
	case err != nil:
	case found:
		var modified time.Time
		var value []byte
		if modified, value, err = parse(content); err == nil {
			return certmagic.KeyInfo{Key: key, Modified: modified, Size: int64(len(value)), IsTerminal: true}, nil
		}
	case directory:
		return certmagic.KeyInfo{Key: key}, nil
	default:
		err = fs.ErrNotExist
	}
	return certmagic.KeyInfo{}, failed("stat", key, err)
}

// look reads what is at key, and whether anything is below it.
func (v *values) look(ctx context.Context, key string) (content []byte, found, directory bool, err error) {
	err = v.try(ctx, func(ctx context.Context) error {
		answer, err := v.client.Txn(ctx).Then(
			clientv3.OpGet(v.file(key)),
			clientv3.OpGet(v.directory(key), clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly()),
		).Commit()
		if err != nil {
			return err
		}
		if kvs := answer.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
			content, found = kvs[0].Value, true
		}
		directory = len(answer.Responses[1].GetResponseRange().Kvs) > 0
		return nil
	})
	return content, found, directory, err
}

// parse splits what is at a key in etcd.
func parse(content []byte) (modified time.Time, value []byte, err error) {
	head, value, ok := bytes.Cut(content, []byte("\n"))
	if !ok {
		return time.Time{}, nil, fmt.Errorf("not a value of this storage")
	}
	modified, err = time.Parse(time.RFC3339Nano, string(head))
	return modified, value, err
}

// failed wraps err with the operation and the key.
func failed(op, key string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: "certmagiclock: " + op, Path: key, Err: err}
}
