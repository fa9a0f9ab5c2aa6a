package coord

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/internal/follow"
	"github.com/etcdlock/locks/internal/request"
)

// recheck is how often what is followed is compared with etcd.
const recheck = 10 * time.Second

// tree has keys, by the folder that each is in, with the slash at its end.
type tree map[string]map[string]*mvccpb.KeyValue

func folderOf[T string | []byte](key T) string {
	return string(key[:strings.LastIndexByte(string(key), '/')+1])
}

// get returns a key, or nil if there is none.
func (t tree) get(key string) *mvccpb.KeyValue { return t[folderOf(key)][key] }

func (t tree) put(kv *mvccpb.KeyValue) {
	folder := folderOf(kv.Key)
	if t[folder] == nil {
		t[folder] = make(map[string]*mvccpb.KeyValue)
	}
	t[folder][string(kv.Key)] = kv
}

func (t tree) remove(kv *mvccpb.KeyValue) {
	folder := folderOf(kv.Key)
	if delete(t[folder], string(kv.Key)); len(t[folder]) == 0 {
		delete(t, folder)
	}
}

// line returns the tickets of the queue that is a folder, in order.
func (t tree) line(folder string) []fairqueue.Entry {
	entries, _ := fairqueue.Parse(strings.TrimSuffix(folder, "/"), slices.Collect(maps.Values(t[folder])))
	return entries
}

// mirror has the keys of a range as they are in etcd. One goroutine writes to it, another one reads the latest state. So a
// slow reader skips states, and memory stays bounded.
type mirror struct {
	source follow.Range
	news   chan struct{} // has a notice if there is something new

	mu      sync.Mutex
	known   bool // all keys have been read
	keys    tree
	changed map[string]bool // folders, since the last look
	err     error           // came after the keys
}

// newMirror returns a mirror of the keys from first to just before end.
func newMirror(client *clientv3.Client, first, end string) *mirror {
	source := follow.Range{Client: client, First: first, End: end, Recheck: recheck}
	return &mirror{source: source, news: make(chan struct{}, 1), keys: tree{}, changed: make(map[string]bool)}
}

// mirrorBelow returns a mirror of the keys below a folder.
func mirrorBelow(client *clientv3.Client, folder string) *mirror {
	return newMirror(client, folder, clientv3.GetPrefixRangeEnd(folder))
}

// follow keeps m up to date until stop is called, ctx ends, or the client is closed.
func (m *mirror) follow(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() { m.source.Follow(ctx, m) })
	return func() {
		cancel()
		following.Wait()
	}
}

// Replace implements [follow.Sink].
func (m *mirror) Replace(kvs []*mvccpb.KeyValue) {
	m.change(func() {
		m.known = true
		for folder := range m.keys {
			m.changed[folder] = true
		}
		clear(m.keys)
		for _, kv := range kvs {
			m.keys.put(kv)
			m.changed[folderOf(kv.Key)] = true
		}
	})
}

// Apply implements [follow.Sink].
func (m *mirror) Apply(events []*clientv3.Event) {
	m.change(func() {
		for _, event := range events {
			if m.changed[folderOf(event.Kv.Key)] = true; event.Type == clientv3.EventTypePut {
				m.keys.put(event.Kv)
			} else {
				m.keys.remove(event.Kv)
			}
		}
	})
}

// Fail implements [follow.Sink].
func (m *mirror) Fail(err error) { m.change(func() { m.err = err }) }

// change makes a change and leaves a notice. An error that came before does not matter any more.
func (m *mirror) change(apply func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = nil
	apply()
	select {
	case m.news <- struct{}{}:
	default: // there is a notice already
	}
}

// latest calls see with the keys, unless they are not known yet, and with the folders that have changed since its last call.
// Then it returns an error that came after these, once. see must not keep what it is called with, nor change it.
func (m *mirror) latest(see func(keys tree, changed map[string]bool)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known {
		see(m.keys, m.changed)
		clear(m.changed)
	}
	err := m.err
	m.err = nil
	return err
}

// await follows keys until see returns true or an error, etcd refuses to be read, or ctx ends. see gets every state,
// or the latest.
func (m *mirror) await(ctx context.Context, see func(keys tree) (over bool, err error)) error {
	defer m.follow(ctx)()
	for {
		select {
		case <-m.news:
		case <-ctx.Done():
			return request.Ended(ctx, nil)
		}
		over, wrong := false, error(nil)
		err := m.latest(func(keys tree, _ map[string]bool) { over, wrong = see(keys) })
		switch {
		case over || wrong != nil:
			return wrong
		case err != nil:
			return err
		}
	}
}
