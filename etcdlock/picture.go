package etcdlock

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// caughtUp stands among the prefixes of changed queues for the news that all that was read has been yielded.
const caughtUp = ""

// picture has the keys of all queues, and which queues have changed since they were yielded. One goroutine writes to it,
// another one loops over its changes.
type picture struct {
	root root
	news chan struct{} // there may be something to yield

	mu      sync.Mutex
	queues  map[string]keys // by prefix; none is empty
	changed []string        // prefixes, each once, and caughtUp
	marked  map[string]bool // those in changed
	shown   map[string]bool // whose queue was not empty when it was yielded last
	err     error           // the latest that was not yielded
}

func newPicture(r root) *picture {
	return &picture{
		root: r, news: make(chan struct{}, 1), queues: make(map[string]keys), marked: make(map[string]bool), shown: make(map[string]bool),
	}
}

// Apply implements [follow.Sink].
func (p *picture) Apply(events []*clientv3.Event) {
	defer p.notify()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, event := range events {
		prefix, ok := p.root.queueAt(string(event.Kv.Key))
		if !ok {
			continue
		}
		if event.Type == clientv3.EventTypePut {
			put(p.queues, prefix, event.Kv)
		} else if delete(p.queues[prefix], string(event.Kv.Key)); len(p.queues[prefix]) == 0 {
			delete(p.queues, prefix)
		}
		p.mark(prefix)
	}
}

// Replace implements [follow.Sink].
func (p *picture) Replace(kvs []*mvccpb.KeyValue) {
	queues := p.root.queues(kvs)
	defer p.notify()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, prefix := range slices.Sorted(maps.Keys(queues)) {
		if !maps.EqualFunc(p.queues[prefix], queues[prefix], sameKey) {
			p.mark(prefix)
		}
	}
	for prefix := range p.queues {
		if queues[prefix] == nil {
			p.mark(prefix)
		}
	}
	p.queues = queues
}

func sameKey(a, b *mvccpb.KeyValue) bool {
	return a.CreateRevision == b.CreateRevision && a.ModRevision == b.ModRevision
}

func (p *picture) mark(prefix string) {
	if !p.marked[prefix] {
		p.marked[prefix] = true
		p.changed = append(p.changed, prefix)
	}
}

// Fail implements [follow.Sink].
func (p *picture) Fail(err error) {
	defer p.notify()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	if p.marked[caughtUp] {
		delete(p.marked, caughtUp)
		p.changed = slices.DeleteFunc(p.changed, func(prefix string) bool { return prefix == caughtUp })
	}
}

// CaughtUp is that of [follow.Range].
func (p *picture) CaughtUp() {
	defer p.notify()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mark(caughtUp)
}

func (p *picture) notify() {
	select {
	case p.news <- struct{}{}:
	default: // there is a notice already
	}
}

// changes yields changed queues, and errors, until ctx ends.
func (p *picture) changes(ctx context.Context) iter.Seq2[Queue, error] {
	return func(yield func(Queue, error) bool) {
		for ctx.Err() == nil {
			q, changed, err := p.next()
			if changed || err != nil {
				if !yield(q, err) {
					return
				}
				continue
			}
			select {
			case <-p.news:
			case <-ctx.Done():
			}
		}
	}
}

// next returns an error or a changed queue that is to be yielded, or an empty Queue that says that all has been.
func (p *picture) next() (q Queue, changed bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		err, p.err = p.err, nil
		return Queue{}, false, err
	}
	for len(p.changed) > 0 {
		prefix := p.changed[0]
		p.changed = p.changed[1:]
		delete(p.marked, prefix)
		if prefix == caughtUp {
			return Queue{}, true, nil
		}
		q, exists := p.root.queue(prefix, p.queues[prefix])
		shown := p.shown[prefix]
		if delete(p.shown, prefix); exists {
			p.shown[prefix] = true
		}
		if exists || shown {
			return q, true, nil
		}
	}
	return Queue{}, false, nil
}
