package proof_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/coord"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
)

// belief is a moment at which a process was a member, as far as it could know.
type belief struct {
	id       string
	token    etcdlock.Token
	revision int64 // of etcd before
}

// reading is the result of a call of Members.
type reading struct {
	since, until int64
	members      string
}

// groupRun is what the members and observers of one group do and see.
type groupRun struct {
	*crowd
	over chan struct{} // nobody joins any more

	mu       sync.Mutex
	beliefs  []belief
	readings []reading
	observed map[*caller][]string // states, in the order in which they came
}

// Whoever believes to be a member is one, and the only one of its id. What is read or observed has been at one revision.
// In the end all that Keep are members, and every observer knows.
func TestGroupInStorms(t *testing.T) { eachSeed(t, stormGroup, 2) }

func stormGroup(t *testing.T, seed uint64) {
	r := &groupRun{crowd: newCrowd(t, seed), over: make(chan struct{}), observed: map[*caller][]string{}}
	r.behave = func(p *caller) {
		var calling sync.WaitGroup
		calling.Go(func() { r.keep(p) })
		calling.Go(func() { r.observe(p) })
		for range 2 {
			calling.Go(func() {
				for p.ctx.Err() == nil && !ended(r.over) {
					r.visit(p)
					pause(p.ctx, 100*time.Millisecond)
				}
			})
		}
		calling.Wait()
	}
	r.storm()
	close(r.over)
	r.rest()
	for _, p := range r.present {
		p.crash() // a good end: etcd can be reached
	}
	r.check(r.finish())
	t.Logf("%d beliefs, %d readings", len(r.beliefs), len(r.readings))
	require.NotEmpty(t, r.beliefs)
}

func group(p *caller) *coord.Group { return coord.NewGroup(p.sessions, "x") }

// keep is a member until the process crashes, again after etcd has refused it.
func (r *groupRun) keep(p *caller) {
	for p.ctx.Err() == nil {
		err := group(p).Keep(p.ctx, fmt.Sprint("keep-", p.number), "kept")
		if p.ctx.Err() == nil && !refused(err) && p.client.Ctx().Err() == nil {
			r.t.Errorf("Keep returned %v", err)
		}
		pause(p.ctx, 500*time.Millisecond)
	}
}

// visit is a member for a moment, of an id that others want, too.
func (r *groupRun) visit(p *caller) {
	ctx, cancel := context.WithTimeout(p.ctx, callLimit)
	defer cancel()
	age, since := r.age.Load(), r.revision()
	if peers, err := group(p).Members(ctx); err == nil {
		until := r.revision()
		r.mu.Lock()
		if r.age.steady(age) {
			r.readings = append(r.readings, reading{since, until, textOf(peers)})
		}
		r.mu.Unlock()
	}
	id := fmt.Sprint("id-", rand.IntN(3))
	m, err := group(p).Join(ctx, id, "0")
	if err != nil {
		return
	}
	for i := range 3 {
		if b := (belief{id, m.Token(), r.revision()}); m.Err() == nil {
			r.mu.Lock()
			if r.age.steady(age) {
				r.beliefs = append(r.beliefs, b)
			}
			r.mu.Unlock()
		}
		_ = m.Set(ctx, fmt.Sprint(i))
		pause(ctx, 50*time.Millisecond)
	}
	if m.Leave(ctx) == nil {
		r.good.Add(1)
	}
}

func (r *groupRun) observe(p *caller) {
	for peers, err := range group(p).Observe(p.ctx) {
		if err == nil {
			r.mu.Lock()
			r.observed[p] = append(r.observed[p], textOf(peers))
			r.mu.Unlock()
		}
	}
}

func textOf(peers []coord.Peer) string {
	var text strings.Builder
	for _, p := range peers {
		fmt.Fprintf(&text, "%s=%s@%d ", p.ID, p.Value, p.Token)
	}
	return text.String()
}

// rest waits until those that keep being members are the members, and each observer knows.
func (r *groupRun) rest() {
	r.t.Helper()
	g := coord.NewGroup(keepQuiet(r.t, r.client), "x")
	require.Eventually(r.t, func() bool {
		peers, err := g.Members(r.t.Context())
		var ids, present []string
		for _, p := range peers {
			ids = append(ids, p.ID)
		}
		for _, p := range r.present {
			present = append(present, fmt.Sprint("keep-", p.number))
		}
		slices.Sort(ids)
		slices.Sort(present)
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, p := range r.present {
			seen := r.observed[p]
			if len(seen) == 0 || seen[len(seen)-1] != textOf(peers) {
				return false
			}
		}
		return err == nil && slices.Equal(ids, present)
	}, patience, 20*time.Millisecond, "the group does not come to rest")
}

// groupState is the members from a revision until the next state.
type groupState struct {
	revision int64
	members  string
	first    map[string]int64 // token by id
}

// statesOf returns the states of a group.
func statesOf(history []embedtest.Change) []groupState {
	lines := map[string]map[string]*clientv3.Event{} // by id and key
	states := []groupState{{}}
	for _, c := range history {
		concerned := false
		for _, e := range c.Events {
			path, ok := strings.CutPrefix(string(e.Kv.Key), "etcdlock/x!/members/")
			id, ticket, _ := strings.Cut(path, "/")
			if !ok || !strings.HasPrefix(ticket, "l") {
				continue
			}
			concerned = true
			if lines[id] == nil {
				lines[id] = map[string]*clientv3.Event{}
			}
			if delete(lines[id], ticket); e.Type == clientv3.EventTypePut {
				lines[id][ticket] = e
			}
		}
		if concerned {
			states = append(states, stateOf(c.Revision, lines))
		}
	}
	return states
}

func stateOf(revision int64, lines map[string]map[string]*clientv3.Event) groupState {
	state := groupState{revision: revision, first: map[string]int64{}}
	var peers []coord.Peer
	for id, line := range lines {
		var first *clientv3.Event
		for _, e := range line {
			if first == nil || e.Kv.CreateRevision < first.Kv.CreateRevision {
				first = e
			}
		}
		if first != nil {
			peers = append(peers, coord.Peer{ID: id, Value: string(first.Kv.Value), Token: etcdlock.Token(first.Kv.CreateRevision)})
			state.first[id] = first.Kv.CreateRevision
		}
	}
	slices.SortFunc(peers, func(a, b coord.Peer) int { return cmp.Compare(a.Token, b.Token) })
	state.members = textOf(peers)
	return state
}

// check compares what the processes have seen with the history.
func (r *groupRun) check(history []embedtest.Change) {
	states := statesOf(history)
	at := func(revision int64) int {
		i, found := slices.BinarySearchFunc(states, revision, func(s groupState, revision int64) int { return cmp.Compare(s.revision, revision) })
		if !found {
			i--
		}
		return i
	}
	for _, b := range r.beliefs {
		require.Equal(r.t, int64(b.token), states[at(b.revision)].first[b.id], "the member %s at %d", b.id, b.revision)
	}
	for _, read := range r.readings {
		was := states[at(read.since) : at(read.until)+1]
		found := slices.ContainsFunc(was, func(s groupState) bool { return s.members == read.members })
		require.True(r.t, found, "between %d and %d the members were never %s", read.since, read.until, read.members)
	}
	if strings.Contains(strings.Join(r.happened, "\n"), swallowed) {
		return // what an observer makes of events that are not all was never so, until it reads again
	}
	for _, seen := range r.observed {
		i := 0
		for _, members := range seen {
			for i < len(states) && states[i].members != members {
				i++
			}
			require.Less(r.t, i, len(states), "observed, and never so or not in this order: %s", members)
		}
	}
}
