package proof_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

// history records what clients did and believed, and reports at once if two believe to hold the same
// lock.
type history struct {
	tb    testing.TB
	start time.Time
	now   func() int64              // in nanoseconds since the start
	tell  func(porcupine.Operation) // may be nil

	mu     sync.Mutex
	steps  []porcupine.Operation
	active map[*belief]bool
	evidence
	wrong []string
}

func newHistory(tb testing.TB) *history {
	start := time.Now()
	return &history{
		tb: tb, start: start, now: func() int64 { return int64(time.Since(start)) }, active: map[*belief]bool{}, evidence: newEvidence(),
	}
}

// holding is what a belief is about; broken locks have holds of their own.
type holding interface {
	Err() error
	Token() etcdlock.Token
	Guards() []clientv3.Cmp
}

// belief is one hold, from the return of Lock to its end.
type belief struct {
	history *history
	client  int
	step    step
	hold    holding
	lease   clientv3.LeaseID
	tickets []ticketID
	since   int64
	last    int64 // when it was believed for certain
	loose   bool  // a writer that lets readers in
	passing bool  // a leader that passes its term on
}

func (h *history) add(client int, s step, call, ret int64) {
	op := porcupine.Operation{ClientId: client, Input: s, Call: call, Return: ret}
	h.steps = append(h.steps, op)
	if h.tell != nil {
		h.tell(op)
	}
}

// acquired notes a successful Lock that was called at a time, and checks it against the
// others: they had their turn before this one returned.
func (h *history) acquired(client int, s step, hold holding, lease clientv3.LeaseID, called int64) *belief {
	now, last := h.now(), called
	if hold.Err() == nil { // unless this process was stopped in between
		last = now
	}
	s.action, s.token = acquire, int64(hold.Token())
	b := &belief{history: h, client: client, step: s, hold: hold, lease: lease, tickets: ticketsOf(hold), since: last, last: last}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(client, s, called, now)
	if at, removed := h.removed(b); removed && at > called {
		// It may have been owned before the removal, which comes first in this history only because the answer took
		// its time. Whether it was owned during the call is checked against what etcd had.
		b.since = called
	}
	for other := range h.active {
		_, removed := h.removed(other)
		if !removed && b.since == last && !other.passing && other.conflicts(b) && other.hold.Err() == nil {
			h.wrong = append(h.wrong, fmt.Sprintf("at %v: %v was granted while client %d believed in %v",
				time.Duration(now), s, other.client, other.step))
		}
	}
	h.active[b] = true
	return b
}

// ticketsOf reads out of the guards of a hold which keys it consists of.
func ticketsOf(hold holding) (ids []ticketID) {
	for _, guard := range hold.Guards() {
		c := guard.GetCompare()
		created, plain := c.TargetUnion.(*etcdserverpb.Compare_CreateRevision)
		if !plain || len(c.RangeEnd) > 0 {
			panic(fmt.Sprint("a guard of another kind: ", c))
		}
		ids = append(ids, ticketID{string(c.Key), created.CreateRevision})
	}
	return ids
}

// conflicts reports whether both cannot be held at a time. How many permits there are is left
// to the model.
func (b *belief) conflicts(other *belief) bool {
	common := slices.ContainsFunc(b.step.names, func(name string) bool { return slices.Contains(other.step.names, name) })
	alone := func(one, other *belief) bool {
		return one.step.weight == exclusive && !(one.loose && other.step.weight == shared) ||
			one.step.weight == upgradeable && other.step.weight == upgradeable
	}
	return common && (alone(b, other) || alone(other, b))
}

// removed returns whether, and when, an operator has removed what b believes in: what its holder
// believes in the moment after that is nobody's promise. It requires mu.
func (h *history) removed(b *belief) (at int64, yes bool) {
	at, yes = h.leases[b.lease]
	for _, id := range b.tickets {
		if struck, is := h.struck[id]; is && (!yes || struck < at) {
			at, yes = struck, true
		}
	}
	return at, yes
}

// look reports whether the holder still believes, and notes it.
func (b *belief) look() bool {
	now := b.history.now() // before looking: then it is certain
	if b.hold.Err() != nil {
		return false
	}
	b.last = now
	return true
}

// lost notes the end of a hold that its holder found out about.
func (b *belief) lost() {
	b.ended(b.last, b.history.now())
}

// released notes the end by an Unlock, whose effect is certain or not.
func (b *belief) released(certain bool) {
	now := b.history.now()
	if !certain {
		now = math.MaxInt64
	}
	b.ended(b.last, now)
}

func (b *belief) ended(call, ret int64) {
	h := b.history
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trusts = append(h.trusts, trust{fmt.Sprintf("client %d, %v", b.client, b.step), b.tickets, b.last})
	if at, removed := h.removed(b); removed {
		call = min(call, max(at, b.since))
	}
	delete(h.active, b)
	s := b.step
	s.action = end
	h.add(b.client, s, call, ret)
}

// loosening notes that a writer is about to become a reader, and returns the time: from now on
// readers may come.
func (b *belief) loosening() int64 {
	b.history.mu.Lock()
	defer b.history.mu.Unlock()
	b.loose = true
	return b.history.now()
}

// passes notes whether a leader is about to pass its term on: meanwhile the next one may lead.
func (b *belief) passes(now bool) {
	b.history.mu.Lock()
	defer b.history.mu.Unlock()
	b.passing = now
}

// upgraded notes that an upgradeable reader has become a writer, and checks that against the others.
func (b *belief) upgraded(called int64) {
	h := b.history
	h.mu.Lock()
	defer h.mu.Unlock()
	s, now := b.step, h.now()
	s.action = upgrade
	h.add(b.client, s, called, now)
	b.step.weight, b.loose = exclusive, false
	_, struck := h.removed(b)
	for other := range h.active {
		_, removed := h.removed(other)
		if other != b && !removed && !struck && b.hold.Err() == nil && other.conflicts(b) && other.hold.Err() == nil {
			h.wrong = append(h.wrong, fmt.Sprintf("at %v: %v was upgraded while client %d believed in %v",
				time.Duration(now), s, other.client, other.step))
		}
	}
}

// downgraded notes that a writer has become a reader.
func (b *belief) downgraded(called int64) {
	h := b.history
	h.mu.Lock()
	defer h.mu.Unlock()
	s := b.step
	s.action = downgrade
	h.add(b.client, s, called, h.now())
	b.step.weight = upgradeable
}

// wrote notes a write that took effect, or may have.
func (b *belief) wrote(called int64, certain bool) {
	h := b.history
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	if !certain {
		return // what may have happened at any time, or not, rules nothing out
	}
	s := b.step
	s.action = write
	h.add(b.client, s, called, now)
}

// violations lists what was seen to be wrong so far.
func (h *history) violations() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wrong
}

// explained reports whether the model explains the history. If not, and -visualise says
// where to, it leaves a page that shows it.
func (h *history) explained(timeout time.Duration) porcupine.CheckResult {
	h.mu.Lock()
	defer h.mu.Unlock()
	for b := range h.active { // of clients that were killed, or are under way
		s := b.step
		s.action = end
		h.add(b.client, s, b.last, math.MaxInt64)
	}
	result, info := porcupine.CheckOperationsVerbose(model, h.steps, timeout)
	if result == porcupine.Illegal && *visualise != "" {
		path := filepath.Join(*visualise, fmt.Sprintf("history-%d.html", time.Now().UnixNano()))
		if file, err := os.Create(path); err == nil {
			_ = porcupine.Visualize(model, info, file)
			_ = file.Close()
			h.tb.Log("the history: ", path)
		}
	}
	return result
}
