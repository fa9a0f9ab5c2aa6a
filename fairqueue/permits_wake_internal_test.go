package fairqueue

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// crowd is all waiters of a history, each of which knows only what it was told when it last
// looked, and looks again only when what it waits for has ended.
type crowd struct {
	t       *testing.T
	past    past
	now     int64
	queue   *Queue
	tickets map[entry]*part
	awake   map[entry]bool // has been told to look, and has not yet
	left    map[entry]bool // gave up, as it was too heavy
	random  *rand.Rand
}

// state is the history without the tickets that were given up.
func (c *crowd) state(at int64) map[string]birth {
	keys := map[string]birth{}
	for key, b := range c.past[at] {
		if !c.left[entry{key: key, revision: b.revision}] {
			keys[key] = b
		}
	}
	return keys
}

// look is what a waiter does that has been woken: it counts, and marks its ticket if it owns after a
// wait.
func (c *crowd) look(t *part) {
	delete(c.awake, t.me)
	keys := c.state(c.now)
	var all []entry
	for key, b := range keys {
		all = append(all, entry{key: key, revision: b.revision})
	}
	waited := t.seen > 0
	err := t.strategy.(*permits).learn(t, snapshotOf(c.queue.space, all, c.now, firstSize))
	switch {
	case err == nil && t.verdict == granted && !owns(keys, t.me):
		c.t.Fatalf("at %d %v is granted; line %v", c.now, t.me, ticketsOf(keys))
	case err != nil: // it is too heavy
		c.left[t.me] = true
		delete(c.tickets, t.me)
		c.tell(clientv3.EventTypeDelete, t.me.key)
	case t.verdict == granted && waited:
		c.tell(clientv3.EventTypePut, t.me.key)
	}
}

// tell wakes the waiters of an event.
func (c *crowd) tell(kind mvccpb.Event_EventType, key string) {
	event := &clientv3.Event{Type: kind, Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: c.now}}
	for me, t := range c.tickets {
		if t.verdict != blocked {
			continue
		}
		o := t.strategy.blocker(t, nil)
		within := key == o.first || o.end != "" && key >= o.first && key < o.end
		if within && (o.puts || kind == clientv3.EventTypeDelete) && o.endedBy(event) {
			c.awake[me] = true
		}
	}
}

// step is the next revision; those whom it wakes may be slow.
func (c *crowd) step() {
	before := c.state(c.now)
	c.now++
	after := c.state(c.now)
	for key, b := range before {
		if after[key].revision != b.revision {
			delete(c.tickets, entry{key: key, revision: b.revision})
			c.tell(clientv3.EventTypeDelete, key)
		}
	}
	for key, b := range after {
		if me := (entry{key: key, revision: b.revision}); b.revision == c.now && weightOf(key) < 1000 {
			t := &part{queue: c.queue, mode: permit, me: me, strategy: &permits{weight: weightOf(key), size: firstSize}}
			c.tickets[me] = t
			c.look(t)
		}
	}
	for me := range c.awake {
		if c.random.IntN(2) > 0 {
			c.wake(me)
		}
	}
}

func (c *crowd) wake(me entry) {
	if t := c.tickets[me]; t != nil {
		c.look(t)
	}
	delete(c.awake, me)
}

func (c *crowd) settle() {
	for len(c.awake) > 0 {
		for me := range c.awake {
			c.wake(me)
		}
	}
}

// Whatever comes and goes, and however slow the waiters are, events bring every ticket what is due
// to it, and none anything else; after a reduction of the size, events and a recheck do. In particular no
// ticket waits for one that owns already and is not going to put its value any more.
func TestEventsWakeWhateverCanOwn(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var woken, rechecked int
	for range 80 {
		script := make([]byte, 2*(20+random.IntN(140)))
		for i := range script {
			script[i] = byte(random.Uint32())
		}
		c := &crowd{
			t: t, past: replayPermits(script), now: 1, queue: &Queue{space: "q/"}, random: random,
			tickets: map[entry]*part{}, awake: map[entry]bool{}, left: map[entry]bool{},
		}
		for c.now < c.past.latest() {
			c.step()
			if random.IntN(4) > 0 {
				continue
			}
			c.settle()
			if c.past.reduced(c.now) {
				rechecked++
				for me := range c.tickets {
					c.awake[me] = true
				}
				c.settle()
			}
			keys := c.state(c.now)
			for me, ticket := range c.tickets {
				owned := ticket.verdict == granted
				if !owned && owns(keys, me) {
					t.Fatalf("at %d %v: told %d, waits for %v or %v, line %v",
						c.now, me, ticket.verdict, ticket.nearest, ticket.strategy.(*permits).ahead, ticketsOf(keys))
				}
				if owned && ticket.seen > me.revision {
					woken++
				}
			}
		}
	}
	require.Greater(t, woken, 100, "the histories are worth something")
	require.Greater(t, rechecked, 100)
}
