package certmagiclock

import (
	"context"
	"io/fs"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// List returns the keys directly below a directory, or, if recursive, all below it. Directories are among them, as in
// certmagic's FileStorage.
func (v *values) List(ctx context.Context, key string, recursive bool) ([]string, error) {
	directory := v.directory(key)
	l := listing{recursive: recursive, seen: map[string]bool{}}
	if at := clean(key); at != "" {
		l.at = at + "/"
	}
	for from := directory; ; {
		page, more, err := v.page(ctx, from, directory)
		if err != nil {
			return nil, failed("list", key, err)
		}
		for _, kv := range page {
			from = directory + l.add(string(kv.Key[len(directory):]))
		}
		if !more {
			break
		}
	}
	if len(l.keys) == 0 && l.at != "" {
		if _, file, _, err := v.look(ctx, key); err != nil || !file {
			if err == nil {
				err = fs.ErrNotExist
			}
			return nil, failed("list", key, err)
		}
	}
	return l.keys, nil
}

// page reads keys of the directory in order, at first from.
func (v *values) page(ctx context.Context, from, directory string) (page []*mvccpb.KeyValue, more bool, err error) {
	err = v.try(ctx, func(ctx context.Context) error {
		answer, err := v.client.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(directory)),
			clientv3.WithLimit(pageSize), clientv3.WithKeysOnly())
		if err == nil {
			page, more = answer.Kvs, answer.More
		}
		return err
	})
	return page, more, err
}

// listing makes files and directories of the keys of values.
type listing struct {
	recursive bool
	at        string // the directory; empty, or ends in a slash
	seen      map[string]bool
	keys      []string
}

// add adds a value and the directories that lead to it, by its name below the directory. It returns where the next
// page begins: after the value, or after the subdirectory if that is not to be walked.
func (l *listing) add(name string) (next string) {
	for i := range len(name) {
		if name[i] != '/' {
			continue
		}
		l.once(name[:i])
		if !l.recursive {
			return name[:i] + "0" // the character after the slash
		}
	}
	l.once(name)
	return name + "\x00"
}

func (l *listing) once(name string) {
	if key := strings.TrimSuffix(l.at+name, "/"); !l.seen[key] {
		l.seen[key] = true
		l.keys = append(l.keys, key)
	}
}
