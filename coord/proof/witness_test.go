package proof_test

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const root = "etcdlock/x!/shards/"

// ticket is one in a line.
type ticket struct {
	key   string
	id    string
	token int64
}

// state is what is in etcd at a revision: a line of tickets for each queue below the root.
type state struct{ lines map[string][]ticket }

func newState() *state { return &state{map[string][]ticket{}} }

func (s *state) put(key string, kv *mvccpb.KeyValue) {
	queue, ok := queueOf(key)
	if !ok {
		return
	}
	var owner struct{ Label string }
	_ = json.Unmarshal(kv.Value, &owner) // the value of a member is none
	s.remove(key)
	s.lines[queue] = append(s.lines[queue], ticket{key, owner.Label, kv.CreateRevision})
	slices.SortFunc(s.lines[queue], func(a, b ticket) int { return cmp.Compare(a.token, b.token) })
}

func (s *state) remove(key string) {
	if queue, ok := queueOf(key); ok {
		s.lines[queue] = slices.DeleteFunc(s.lines[queue], func(t ticket) bool { return t.key == key })
	}
}

func queueOf(key string) (queue string, ok bool) {
	path, ok := strings.CutPrefix(key, root)
	end := strings.LastIndexByte(path, '/')
	return path[:max(end, 0)], ok && end > 0 && !strings.Contains(path, "!")
}

func (s *state) members() (ids []string) {
	for queue, line := range s.lines {
		if id, ok := strings.CutPrefix(queue, "members/"); ok && len(line) > 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// witness has the whole history.
type witness struct {
	t       *testing.T
	stop    context.CancelFunc
	reading sync.WaitGroup

	mu      sync.Mutex
	events  []*clientv3.Event
	problem error
}

func observe(t *testing.T, client *clientv3.Client) *witness {
	ctx, stop := context.WithCancel(context.Background())
	w := &witness{t: t, stop: stop}
	watch := client.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(1))
	w.reading.Go(func() {
		for response := range watch {
			w.mu.Lock()
			w.problem = cmp.Or(w.problem, response.Err())
			w.events = append(w.events, response.Events...)
			w.mu.Unlock()
		}
	})
	return w
}

// change is another first in line than the last one.
type change struct {
	revision int64
	shard    int
	from, to string
}

// replay goes through the history after a revision, up to another one; 0 is all. It returns the changes, and the guarded
// writes that were not made by the first in line.
func (w *witness) replay(after, until int64) (changes []change, wrong []string, writes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, last := newState(), map[string]string{}
	for i := 0; i < len(w.events); {
		revision, n := w.events[i].Kv.ModRevision, i
		for n < len(w.events) && w.events[n].Kv.ModRevision == revision {
			n++
		}
		if until > 0 && revision > until {
			break
		}
		for _, e := range w.events[i:n] { // of the state before
			shard, ok := strings.CutPrefix(string(e.Kv.Key), "work/")
			if !ok {
				continue
			}
			writes++
			if line := s.lines[shard]; len(line) == 0 || strconv.FormatInt(line[0].token, 10) != string(e.Kv.Value) {
				wrong = append(wrong, string(e.Kv.Key)+" at "+strconv.FormatInt(revision, 10)+" by "+string(e.Kv.Value))
			}
		}
		for _, e := range w.events[i:n] {
			if e.Type == clientv3.EventTypeDelete {
				s.remove(string(e.Kv.Key))
			} else {
				s.put(string(e.Kv.Key), e.Kv)
			}
		}
		for queue, line := range s.lines {
			shard, err := strconv.Atoi(queue)
			if err != nil || len(line) == 0 || last[queue] == line[0].id {
				continue
			}
			if before := last[queue]; before != "" && revision > after {
				changes = append(changes, change{revision, shard, before, line[0].id})
			}
			last[queue] = line[0].id
		}
		i = n
	}
	return changes, wrong, writes
}

// upTo waits until the witness has seen the present revision, and returns that.
func (w *witness) upTo(client *clientv3.Client) int64 {
	w.t.Helper()
	answer, err := client.Put(context.Background(), "mark", "")
	require.NoError(w.t, err)
	require.Eventually(w.t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.events) > 0 && w.events[len(w.events)-1].Kv.ModRevision >= answer.Header.Revision
	}, patience, patience/10000)
	return answer.Header.Revision
}

// check ends the witness, and checks the history.
func (w *witness) check() {
	w.t.Helper()
	w.stop()
	w.reading.Wait()
	require.NoError(w.t, w.problem)
	changes, wrong, writes := w.replay(0, 0)
	require.Empty(w.t, wrong)
	require.NotZero(w.t, writes)
	w.t.Logf("%d events, %d guarded writes, %d changes of an owner", len(w.events), writes, len(changes))
}
