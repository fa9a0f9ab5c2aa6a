package etcdlock

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/internal/follow"
	"github.com/etcdlock/locks/internal/request"
)

// root is where the queues of all names are in etcd.
type root struct {
	prefix string // with the slash at its end; empty for all of etcd
	raw    bool   // names are prefixes
}

// rootOf returns what InspectAll and FollowAll look at.
func rootOf(opts []Option) (root, options, error) {
	o := collect(anInspection, opts)
	if o.raw && !o.namespaced {
		return root{raw: true}, o, nil
	}
	if err := valid(o.namespace); err != nil {
		return root{}, o, fmt.Errorf("namespace %q: %w", brief(o.namespace), err)
	}
	return root{o.namespace + "/", o.raw}, o, nil
}

// keys are those below the root.
func (r root) keys(client *clientv3.Client, recheck time.Duration) follow.Range {
	first := cmp.Or(r.prefix, "\x00") // etcd has no empty key
	return follow.Range{Client: client, First: first, End: clientv3.GetPrefixRangeEnd(r.prefix), Recheck: recheck}
}

func (r root) explain(client *clientv3.Client, err error) error {
	if request.IsAnswer(err, rpctypes.ErrPermissionDenied) {
		return fmt.Errorf("%w: the client's user must not read all keys that begin with %q", err, r.prefix)
	}
	return request.Explain(client, err)
}

// queueAt returns the prefix of the queue that a key belongs to, with the slash at its end. ok is false if it is in none:
// what lies below "<name>!/" belongs to a name's queue without being in it, and "!/" has the sessions' epochs.
func (r root) queueAt(key string) (prefix string, ok bool) {
	below := strings.TrimPrefix(key, r.prefix)
	if !r.raw {
		name, _, ok := strings.Cut(below, "/")
		return r.prefix + name + "/", ok && !strings.HasSuffix(name, "!")
	}
	end := strings.LastIndex(below, "/")
	if folder := strings.Index(below, "/!"); folder >= 0 {
		end = folder // of the size, inside the queue
	}
	return r.prefix + below[:end+1], end >= 0 && !strings.Contains(below, "!/")
}

// name is that of the queue at prefix. A prefix that no name has is shown as it is.
func (r root) name(prefix string) string {
	if r.raw {
		return strings.TrimSuffix(prefix, "/")
	}
	escaped := strings.TrimSuffix(strings.TrimPrefix(prefix, r.prefix), "/")
	if name, err := url.PathUnescape(escaped); err == nil && url.PathEscape(name) == escaped {
		return name
	}
	return escaped
}

// keys are those of a queue.
type keys map[string]*mvccpb.KeyValue

func put(queues map[string]keys, prefix string, kv *mvccpb.KeyValue) {
	if queues[prefix] == nil {
		queues[prefix] = make(keys)
	}
	queues[prefix][string(kv.Key)] = kv
}

// queues returns the keys of each queue, by prefix. None is empty.
func (r root) queues(kvs []*mvccpb.KeyValue) map[string]keys {
	queues := make(map[string]keys)
	for _, kv := range kvs {
		if prefix, ok := r.queueAt(string(kv.Key)); ok {
			put(queues, prefix, kv)
		}
	}
	return queues
}

// queue returns the queue at prefix; exists is false if there is nothing in it.
func (r root) queue(prefix string, in keys) (q Queue, exists bool) {
	trimmed := strings.TrimSuffix(prefix, "/")
	entries, size := fairqueue.Parse(trimmed, slices.Collect(maps.Values(in)))
	return newQueue(r.name(prefix), trimmed, entries, size), len(entries) > 0 || size > 0
}
