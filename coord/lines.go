package coord

import (
	"context"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/internal/follow"
	"github.com/etcdlock/locks/session"
)

// recheck is how often what is followed is compared with etcd.
const recheck = 10 * time.Second

// lines has the queues below a folder. One goroutine writes to it, another one reads the latest state. So a slow reader
// skips states, and memory stays bounded.
type lines struct {
	folder string        // with the slash at its end
	news   chan struct{} // has a notice if there is something new

	mu      sync.Mutex
	known   bool // all keys have been read
	keys    map[string]map[string]*mvccpb.KeyValue
	entries map[string][]fairqueue.Entry // in line; by the queue's path below the folder. No queue is empty
	changed map[string]bool              // queues that are other ones than those that were seen
	err     error                        // the latest that was not reported
}

func newLines(folder string) *lines {
	return &lines{folder: folder + "/", news: make(chan struct{}, 1), changed: make(map[string]bool)}
}

// read reads all keys, at one revision.
func (l *lines) read(ctx context.Context, client *clientv3.Client) error {
	return session.Retry(ctx, func(ctx context.Context) error {
		answer, err := client.Get(ctx, l.folder, clientv3.WithPrefix())
		if err == nil {
			l.Replace(answer.Kvs)
		}
		return err
	})
}

// follow keeps l up to date until ctx ends or the client is closed.
func (l *lines) follow(ctx context.Context, client *clientv3.Client) {
	below := follow.Range{Client: client, First: l.folder, End: clientv3.GetPrefixRangeEnd(l.folder), Recheck: recheck}
	below.Follow(ctx, l)
}

// Replace implements [follow.Sink].
func (l *lines) Replace(kvs []*mvccpb.KeyValue) {
	defer l.notify()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = true
	for queue := range l.entries {
		l.changed[queue] = true
	}
	l.keys, l.entries = make(map[string]map[string]*mvccpb.KeyValue), make(map[string][]fairqueue.Entry)
	for _, kv := range kvs {
		l.put(kv)
	}
	for queue := range l.keys {
		l.parse(queue)
	}
}

// Apply implements [follow.Sink].
func (l *lines) Apply(events []*clientv3.Event) {
	defer l.notify()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, event := range events {
		if event.Type == clientv3.EventTypePut {
			l.put(event.Kv)
		} else {
			delete(l.keys[l.queueOf(event.Kv)], string(event.Kv.Key))
		}
	}
	for _, event := range events {
		l.parse(l.queueOf(event.Kv))
	}
}

// Fail implements [follow.Sink].
func (l *lines) Fail(err error) {
	defer l.notify()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *lines) notify() {
	select {
	case l.news <- struct{}{}:
	default: // there is a notice already
	}
}

// queueOf returns the path of the queue that a key is in, below the folder. Others than tickets, such as the epochs of
// sessions, are in none.
func (l *lines) queueOf(kv *mvccpb.KeyValue) string {
	path := strings.TrimPrefix(string(kv.Key), l.folder)
	if strings.Contains(path, "!") {
		return ""
	}
	return path[:max(strings.LastIndexByte(path, '/'), 0)]
}

func (l *lines) put(kv *mvccpb.KeyValue) {
	queue := l.queueOf(kv)
	if queue == "" {
		return
	}
	if l.keys[queue] == nil {
		l.keys[queue] = make(map[string]*mvccpb.KeyValue)
	}
	l.keys[queue][string(kv.Key)] = kv
}

func (l *lines) parse(queue string) {
	l.changed[queue] = true
	kvs := make([]*mvccpb.KeyValue, 0, len(l.keys[queue]))
	for _, kv := range l.keys[queue] {
		kvs = append(kvs, kv)
	}
	entries, _ := fairqueue.Parse(l.folder+queue, kvs)
	if len(entries) == 0 {
		delete(l.keys, queue)
		delete(l.entries, queue)
		return
	}
	l.entries[queue] = entries
}

// latest calls see with the entries, unless nothing is known yet, and with the queues that have changed since its last
// call. It returns an error that was not returned before. see must not change the entries, nor use them later.
func (l *lines) latest(see func(entries map[string][]fairqueue.Entry, changed map[string]bool)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		err := l.err
		l.err = nil
		return err
	}
	if l.known {
		see(l.entries, l.changed)
		clear(l.changed)
	}
	return nil
}
