package fairqueue

import (
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// calmFor is how long it is expected of a queue that nobody is there. If somebody is, the condition
// that nobody is makes etcd read the whole queue while nothing else is applied, so it must not have had the
// time to become long.
const calmFor = time.Second

// calm is what those who use a Queue value know of the queue: whether one who joins will meet nobody.
type calm struct {
	until   atomic.Int64 // Unix time in nanoseconds
	leaving atomic.Int32 // those who are, and would still be there
}

// met hears what the last one to join has met.
func (c *calm) met(nobody bool) {
	if nobody {
		c.until.Store(time.Now().Add(calmFor).UnixNano())
	} else {
		c.until.Store(0)
	}
}

func (c *calm) expected() bool {
	return c.leaving.Load() == 0 && time.Now().UnixNano() < c.until.Load()
}

// shortcut creates the ticket only if nobody else is in the queue: then there is nothing to be read. Nil
// unless that is to be expected.
func (t *Ticket) shortcut(put []clientv3.Op) *session.Shortcut {
	if t.mode == Shared || !t.queue.calm.expected() {
		return nil
	}
	return &session.Shortcut{If: t.queue.nobody, Then: put}
}
