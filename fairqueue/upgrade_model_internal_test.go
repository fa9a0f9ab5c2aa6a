package fairqueue

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// upgradeModel is a queue of readers, writers and upgradeable tickets, in which everything happens in a random order:
// joins, looks that any member answers however far behind it is, upgrades step by step, transactions that arrive late, and
// departures. What a look means is left to decide and decideUpgrade.
type upgradeModel struct {
	random  *rand.Rand
	history []map[string]record // of the store, by revision
	tickets []*modelTicket
	names   int
}

// record is a key in the store.
type record struct {
	created, written int64
	marked           bool
}

// modelTicket is a ticket and what its process believes.
type modelTicket struct {
	mode Mode
	me   entry
	owns bool // as the process believes: with shared ones, if it is upgradeable

	barrier  *entry    // of the upgrade under way
	attempts []attempt // transactions that may arrive
	alone    bool      // Upgrade has returned nil, and Share was not called since
}

// attempt is a transaction that changes a mark. The conditions that it does not have are nil or false.
type attempt struct {
	written   int64
	marks     bool
	vacant    bool   // on condition that there is no shared ticket
	barrier   *entry // which is removed
	nearest   *entry
	forCaller bool // still waits for the answer
}

func newUpgradeModel(seed uint64) *upgradeModel {
	return &upgradeModel{random: rand.New(rand.NewPCG(seed, 7)), history: []map[string]record{nil, {}}}
}

func (m *upgradeModel) latest() int64 { return int64(len(m.history)) - 1 }

// write makes a revision, and returns it.
func (m *upgradeModel) write(change func(store map[string]record, revision int64)) int64 {
	store := maps.Clone(m.history[m.latest()])
	m.history = append(m.history, store)
	change(store, m.latest())
	return m.latest()
}

func (m *upgradeModel) create(mode Mode) entry {
	m.names++
	key := fmt.Sprintf("q/%c%d-0", map[Mode]Mode{Exclusive: Exclusive, Shared: Shared, Upgradeable: Exclusive}[mode], m.names)
	revision := m.write(func(store map[string]record, revision int64) {
		store[key] = record{revision, revision, mode == Upgradeable}
	})
	return entry{key: key, revision: revision}
}

func (m *upgradeModel) remove(e entry) {
	m.write(func(store map[string]record, _ int64) { delete(store, e.key) })
}

func (m *upgradeModel) there(e entry) bool { return m.history[m.latest()][e.key].created == e.revision }

// answer is the queue in order, at a revision from least on.
func (m *upgradeModel) answer(least int64, fresh bool) answer {
	at := m.latest()
	if !fresh {
		at -= m.random.Int64N(at - least + 1)
	}
	a := answer{revision: at}
	for key, r := range m.history[at] {
		a.entries = append(a.entries, entry{key, r.created, r.marked})
	}
	slices.SortFunc(a.entries, func(a, b entry) int { return int(a.revision - b.revision) })
	return a
}

func (m *upgradeModel) look(t *modelTicket, fresh bool) {
	a := m.answer(t.me.revision, fresh)
	v, _ := space("q/").decide(t.me, t.mode, t.me.revision, a)
	t.owns = t.owns || v == granted
}

// upgrade takes a step of the upgrade of t.
func (m *upgradeModel) upgrade(t *modelTicket, fresh bool) {
	if t.barrier == nil {
		m.send(t, attempt{written: m.written(t), vacant: true}, true)
		if !t.alone {
			e := m.create(Exclusive)
			t.barrier = &e
		}
		return
	}
	a := m.answer(t.barrier.revision, fresh)
	queue := a.entries
	if limit := m.random.IntN(4); limit > 0 && !fresh {
		queue = queue[:min(limit, len(queue))]
	}
	if v, nearest := space("q/").decideUpgrade(queue); v == granted {
		m.send(t, attempt{written: m.history[a.revision][t.me.key].written, barrier: t.barrier, nearest: &nearest}, fresh)
	}
}

func (m *upgradeModel) written(t *modelTicket) int64 { return m.history[m.latest()][t.me.key].written }

// send lets a transaction arrive now or later.
func (m *upgradeModel) send(t *modelTicket, a attempt, now bool) {
	a.forCaller = true
	if t.attempts = append(t.attempts, a); now {
		m.arrive(t, len(t.attempts)-1)
	}
}

// arrive applies one of the transactions of t.
func (m *upgradeModel) arrive(t *modelTicket, i int) {
	a := t.attempts[i]
	t.attempts = slices.Delete(t.attempts, i, i+1)
	switch {
	case m.written(t) != a.written, a.barrier != nil && !m.there(*a.barrier), a.nearest != nil && !m.there(*a.nearest):
		return
	case a.vacant && slices.ContainsFunc(m.answer(0, true).entries, func(e entry) bool { return e.key[2] == byte(Shared) }):
		return
	}
	m.setMark(t.me, a.marks)
	if a.barrier != nil {
		m.remove(*a.barrier)
	}
	if a.forCaller && !a.marks {
		t.alone, t.barrier = true, nil
	}
}

// share marks t, at some time.
func (m *upgradeModel) share(t *modelTicket) {
	t.mode, t.alone = Upgradeable, false
	m.forget(t)
	m.send(t, attempt{written: m.written(t), marks: true}, m.random.IntN(2) == 0)
}

// forget is for callers that have not waited for an answer.
func (m *upgradeModel) forget(t *modelTicket) {
	for i := range t.attempts {
		t.attempts[i].forCaller = false
	}
}

func (m *upgradeModel) setMark(e entry, marked bool) {
	m.write(func(store map[string]record, revision int64) { store[e.key] = record{e.revision, revision, marked} })
}

// giveUp ends the upgrade under way. Its transactions may arrive later, and so may the mark that it puts back.
func (m *upgradeModel) giveUp(t *modelTicket) {
	m.remove(*t.barrier)
	t.barrier = nil
	m.share(t)
}

func (m *upgradeModel) leave(t *modelTicket) {
	m.remove(t.me)
	if t.barrier != nil {
		m.remove(*t.barrier)
	}
	m.tickets = slices.DeleteFunc(m.tickets, func(other *modelTicket) bool { return other == t })
}

func (m *upgradeModel) join() {
	mode := []Mode{Exclusive, Shared, Shared, Upgradeable, Upgradeable}[m.random.IntN(5)]
	m.tickets = append(m.tickets, &modelTicket{mode: mode, me: m.create(mode)})
}

// act lets something happen to a ticket.
func (m *upgradeModel) act(t *modelTicket) {
	switch what := m.random.IntN(12); {
	case len(t.attempts) > 0 && what < 4:
		m.arrive(t, m.random.IntN(len(t.attempts)))
	case what == 0 || t.owns && what == 1:
		m.leave(t)
	case !t.owns:
		m.look(t, false)
	case (t.alone || t.mode == Exclusive) && what < 6:
		m.share(t)
	case t.barrier != nil && what == 2:
		m.giveUp(t)
	case t.mode == Upgradeable && !t.alone:
		m.upgrade(t, false)
	}
}

// check requires that no two own that exclude each other.
func (m *upgradeModel) check(t *testing.T, seed uint64) {
	t.Helper()
	alone := func(a *modelTicket) bool { return a.mode == Exclusive || a.alone }
	for i, a := range m.tickets {
		for _, b := range m.tickets[:i] {
			if a.owns && b.owns && (alone(a) || alone(b) || a.mode == Upgradeable && b.mode == Upgradeable) {
				t.Fatalf("seed %d, revision %d: %+v and %+v", seed, m.latest(), *a, *b)
			}
		}
	}
}

// drain lets all that wait be served, without joins and delays. Each owner upgrades if it can, and leaves.
func (m *upgradeModel) drain(t *testing.T, seed uint64) {
	for range 10 * len(m.tickets) {
		for _, ticket := range slices.Clone(m.tickets) {
			switch {
			case !ticket.owns:
				m.look(ticket, true)
			case ticket.mode == Upgradeable && !ticket.alone:
				m.upgrade(ticket, true)
			default:
				m.leave(ticket)
			}
			m.check(t, seed)
		}
	}
	if len(m.tickets) > 0 {
		t.Fatalf("seed %d: %d wait for ever, the first is %+v", seed, len(m.tickets), *m.tickets[0])
	}
}

func TestUpgradesExcludeAllOthersAndWaitForNoneForEver(t *testing.T) {
	upgraded := 0
	for seed := range uint64(3000) {
		m := newUpgradeModel(seed)
		for range 150 {
			if len(m.tickets) < 7 && m.random.IntN(4) == 0 || len(m.tickets) == 0 {
				m.join()
			}
			ticket := m.tickets[m.random.IntN(len(m.tickets))]
			m.act(ticket)
			m.check(t, seed)
			if ticket.alone {
				upgraded++
			}
		}
		m.drain(t, seed)
		require.Empty(t, m.history[m.latest()], seed)
	}
	require.Greater(t, upgraded, 1000, "the model shows what it is for")
}
