package fairqueue

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/session"
)

// firstSize is the size that the first callers ask for.
const firstSize = 4

// replayPermits makes a history of a semaphore of bytes, two of them for each revision.
func replayPermits(script []byte) past {
	p := past{nil, {}}
	const s = space("q/")
	for len(script) >= 2 && len(p) < 160 {
		what, which := script[0], int64(script[1])
		script = script[2:]
		now, revision := maps.Clone(p[len(p)-1]), int64(len(p))
		inOrder := ticketsOf(now)
		create := func(key string) {
			if _, taken := now[key]; !taken {
				now[key] = birth{revision: revision}
			}
		}
		switch what % 8 {
		case 0, 1, 2, 3:
			key := s.key(permit, 1, int(which/6), which%6+1)
			create(key)
			if _, ok := sizeAt(now); !ok {
				create(s.sizeKey(firstSize))
			}
		case 4:
			if what/8%4 > 0 { // keys of other programs are rare
				create([]string{"q/sub/x1-0", "q/a/3", "q0"}[which%3])
				break
			}
			create([]string{"q/694d", "q/x2-0", "q/s2-0", "q/p", "q/p3-0", "q/p3-0-0"}[which%6])
		case 5, 6: // mostly one of the first
			if len(inOrder) > 0 {
				delete(now, inOrder[int(which)%min(len(inOrder), int(what/8)%4+1)].key)
			}
		case 7:
			size, ok := sizeAt(now)
			if next := which%9 + 1; ok && next != size {
				delete(now, s.sizeKey(size))
				create(s.sizeKey(next))
			}
		}
		p = append(p, now)
	}
	return p
}

func sizeAt(keys map[string]birth) (size int64, ok bool) {
	for key := range keys {
		if size, ok = space("q/").sizeOf(key); ok {
			return size, true
		}
	}
	return firstSize, false
}

// reduced reports whether the size has been reduced up to a revision.
func (p past) reduced(at int64) bool {
	largest := int64(0)
	for _, keys := range p[:at+1] {
		size, ok := sizeAt(keys)
		if ok && size < largest {
			return true
		}
		largest = max(largest, size)
	}
	return false
}

func ticketsOf(keys map[string]birth) []entry {
	var tickets []entry
	for key, b := range keys {
		if _, ok := space("q/").mode(key); ok {
			tickets = append(tickets, entry{key: key, revision: b.revision})
		}
	}
	slices.SortFunc(tickets, func(a, b entry) int { return cmp.Compare(a.revision, b.revision) })
	return tickets
}

func weightOf(key string) int64 {
	var lease, slot, weight int64
	if n, _ := fmt.Sscanf(key, "q/p%x-%x-%x", &lease, &slot, &weight); n == 3 && weight > 0 {
		return weight
	}
	return 1000 // not a ticket for permits: all there is, and more
}

// owns says by definition whether me does: it and all ahead of it are together within the size.
func owns(keys map[string]birth, me entry) bool {
	size, _ := sizeAt(keys)
	sum := weightOf(me.key)
	for _, e := range ticketsOf(keys) {
		if e.revision < me.revision {
			sum += weightOf(e.key)
		}
	}
	return keys[me.key].revision == me.revision && sum <= size
}

// ownedBy says whether a ticket did at any revision up to at.
func (p past) ownedBy(at int64, e entry) bool {
	for r := e.revision; r <= at; r++ {
		if owns(p[r], e) {
			return true
		}
	}
	return false
}

// checkDecision holds what a look says of me at a revision against the model.
func (p past) checkDecision(t *testing.T, me entry, at int64, v verdict, predecessor entry, ahead []string) {
	t.Helper()
	size, _ := sizeAt(p[at])
	var before []entry
	for _, e := range ticketsOf(p[at]) {
		if e.revision < me.revision {
			before = append(before, e)
		}
	}
	there := p[at][me.key].revision == me.revision
	var ok bool
	switch {
	case v == gone:
		ok = !there
	case v == granted:
		ok = owns(p[at], me)
	case v == blocked && ahead == nil:
		// By a ticket that is still to leave, or to put its value when it comes to own. It does so if it has waited.
		// So it must not own yet, nor have owned before, unless that was before a reduction.
		ok = there && !owns(p[at], me) && len(before) > 0 && before[len(before)-1] == predecessor &&
			(!p.ownedBy(at, predecessor) || p.reduced(at))
	case v == blocked: // by all of those ahead, which own
		sum := int64(0)
		var all []string
		for _, e := range before {
			sum += weightOf(e.key)
			all = append(all, e.key)
		}
		ok = there && !owns(p[at], me) && len(all) > 0 && slices.Equal(all, ahead) && sum <= size
	}
	if !ok {
		t.Fatalf("at %d %v is told %d, by %v, ahead %v; size %d, there %v, owns %v, line %v",
			at, me, v, predecessor, ahead, size, there, owns(p[at], me), before)
	}
}

// runPermits replays a history and puts questions about it, of four bytes each.
func (i *inquiry) runPermits(t *testing.T, script, questions []byte) {
	p := replayPermits(script)
	seen := map[entry]bool{}
	for _, keys := range p {
		for _, e := range ticketsOf(keys) {
			if weightOf(e.key) < 1000 {
				seen[e] = true
			}
		}
	}
	mine := slices.SortedFunc(maps.Keys(seen), func(a, b entry) int { return cmp.Compare(a.revision, b.revision) })
	if len(mine) == 0 {
		return
	}
	for ; len(questions) >= 4; questions = questions[4:] {
		me := mine[int(questions[0])%len(mine)]
		*i.kv = pastKV{past: p, behind: int64(questions[1])%p.latest() + 1, tie: questions[3]&1 > 0}
		least := me.revision + int64(questions[2])%(p.latest()-me.revision+1)
		i.askPermits(t, me, least)
	}
}

// permits makes a ticket for permits.
func (i *inquiry) permits(me entry) (*part, *permits) {
	strategy := &permits{weight: weightOf(me.key), size: firstSize}
	return &part{queue: i.queue, session: i.queue.source.(*session.Session), mode: permit, strategy: strategy, me: me}, strategy
}

func (i *inquiry) askPermits(t *testing.T, me entry, least int64) {
	p := i.kv.past
	ticket, strategy := i.permits(me)
	for _, local := range []bool{true, false} {
		c, _, err := i.queue.snapshot(context.Background(), ticket.session, strategy.size, me.revision, local)
		if err != nil || c.revision != i.kv.at(local) {
			t.Fatalf("snapshot %v, error %v", c, err)
		}
		if c.revision < me.revision {
			continue // look, below, does not believe it
		}
		if strategy.weight > c.size {
			continue
		}
		v, predecessor, ahead := c.decide(i.queue.space, me, strategy.weight)
		p.checkDecision(t, me, c.revision, v, predecessor, ahead)
	}
	err := strategy.look(context.Background(), ticket, wakeup{revision: least})
	if size, _ := sizeAt(p[ticket.seen]); strategy.weight > size {
		var tooHeavy *SizeError
		require.ErrorAs(t, err, &tooHeavy)
		return
	}
	if err != nil || ticket.seen < least {
		t.Fatalf("looked at %d, least %d: %d, %v", ticket.seen, least, ticket.verdict, err)
	}
	p.checkDecision(t, me, ticket.seen, ticket.verdict, ticket.nearest, strategy.ahead)
	if at := p[ticket.seen]; owns(at, me) != (ticket.verdict == granted) {
		t.Fatalf("%v at %d: %d", me, ticket.seen, ticket.verdict)
	}
}

// The verdict on a ticket for permits follows from the weights ahead of it, whichever member gives them.
func FuzzCountGrantsWhatTheModelGrants(f *testing.F) {
	i := newInquiry(f)
	f.Add([]byte{0, 1, 0, 8, 0, 14, 0, 20, 5, 0, 7, 0, 0, 3}, []byte{0, 9, 0, 0, 1, 9, 1, 0, 2, 3, 0, 1, 3, 9, 0, 9})
	f.Add([]byte{4, 0, 0, 1, 0, 6, 12, 0, 0, 12, 7, 8, 0, 18, 7, 1, 6, 0}, []byte{0, 9, 0, 0, 1, 9, 1, 1, 2, 9, 0, 3, 3, 9, 2, 6})
	f.Fuzz(func(t *testing.T, script, questions []byte) {
		i.runPermits(t, script[:min(len(script), 240)], questions[:min(len(questions), 48)])
	})
}

func TestCountGrantsWhatTheModelGrants(t *testing.T) {
	i := newInquiry(t)
	random := rand.New(rand.NewPCG(3, 4))
	some := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	for range 40 {
		i.runPermits(t, some(2*random.IntN(160)), some(4*20))
	}
}

// A size without bounds is a size like any other.
func TestCountOfTheLargestSize(t *testing.T) {
	const s = space("q/")
	me := entry{key: s.key(permit, 1, 0, math.MaxInt64), revision: 9}
	for _, ahead := range []string{"q/694d", "q/x2-0", s.key(permit, 2, 0, 1), s.key(permit, 2, 0, math.MaxInt64)} {
		c := snapshotOf(s, []entry{{key: ahead, revision: 5}, me}, 9, math.MaxInt64)
		v, _, _ := c.decide(s, me, math.MaxInt64)
		require.Equal(t, blocked, v, ahead)
	}
}
