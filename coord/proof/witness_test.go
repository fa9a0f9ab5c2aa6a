package proof_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/etcdlock/locks/embedtest"
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

// memberPoll is how often a witness looks whether a member is another run than before.
const memberPoll = 20 * time.Millisecond

// witness has the whole history. It reads the stores of the members themselves, where no fault hides anything.
type witness struct {
	t       *testing.T
	cluster *embedtest.Cluster
	end     context.CancelFunc
	reading sync.WaitGroup

	mu      sync.Mutex
	seen    int64 // every event up to this revision is there
	events  []*clientv3.Event
	problem error
}

// observe starts to read. It ends with the test, or with stop.
func observe(t *testing.T, cluster *embedtest.Cluster) *witness {
	ctx, end := context.WithCancel(context.Background())
	w := &witness{t: t, cluster: cluster, end: end}
	for _, m := range cluster.Members() {
		w.reading.Go(func() {
			for ctx.Err() == nil {
				if server := m.Server(); server != nil {
					w.read(ctx, m, server)
				}
				pause(ctx, memberPoll)
			}
		})
	}
	t.Cleanup(w.stop)
	return w
}

func (w *witness) stop() {
	w.end()
	w.reading.Wait()
}

// read notes what one run of a member has to tell.
func (w *witness) read(ctx context.Context, m *embedtest.Member, server *etcdserver.EtcdServer) {
	stream := server.KV().NewWatchStream()
	defer stream.Close()
	if _, err := stream.Watch(ctx, 0, []byte{0}, []byte{}, w.position()+1); err != nil {
		w.fail(err)
		return
	}
	poll := time.NewTicker(memberPoll)
	defer poll.Stop()
	for {
		select {
		case answer, ok := <-stream.Chan():
			if !ok {
				return
			}
			w.note(answer)
		case <-poll.C:
			if m.Server() != server {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// note takes in what has not been noted from another member. An answer has all events of each of its revisions.
func (w *witness) note(answer mvcc.WatchResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if answer.CompactRevision > w.seen {
		w.problem = fmt.Errorf("history up to %d was compacted, and has been read up to %d", answer.CompactRevision, w.seen)
	}
	before := w.seen
	for _, e := range answer.Events {
		if e.Kv.ModRevision > before {
			w.seen = e.Kv.ModRevision
			w.events = append(w.events, e)
		}
	}
}

func (w *witness) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problem = cmp.Or(w.problem, err)
}

func (w *witness) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.problem
}

func (w *witness) position() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

// change is another first in line than the last one.
type change struct {
	revision int64
	shard    int
	from, to string
}

// replay goes through the history up to a revision; 0 is all. It returns the changes, and the guarded writes that were not
// made by the first in line, both of after a revision.
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
			shard := strings.TrimPrefix(string(e.Kv.Key), "work/")
			if _, err := strconv.Atoi(shard); err != nil {
				continue
			}
			if revision > after {
				writes++
			}
			if line := s.lines[shard]; revision > after && (len(line) == 0 || strconv.FormatInt(line[0].token, 10) != string(e.Kv.Value)) {
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
		for _, e := range w.events[i:n] {
			queue, _ := queueOf(string(e.Kv.Key))
			line := s.lines[queue]
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

// upTo makes a revision, waits until the witness has seen it, and returns it.
func (s *scene) upTo() (revision int64) {
	s.t.Helper()
	s.must("mark", func(ctx context.Context) error {
		answer, err := s.client.Put(ctx, "mark", "")
		if err == nil {
			revision = answer.Header.Revision
		}
		return err
	})
	require.Eventually(s.t, func() bool { return s.witness.position() >= revision }, patience, patience/10000)
	return revision
}

// history ends the witness, and returns all events.
func (s *scene) history() []*clientv3.Event {
	s.t.Helper()
	s.upTo()
	s.witness.stop()
	require.NoError(s.t, s.witness.failure())
	return s.witness.events
}

// check checks the history after a revision.
func (s *scene) check(after int64) {
	s.t.Helper()
	s.upTo()
	require.NoError(s.t, s.witness.failure())
	changes, wrong, writes := s.witness.replay(after, 0)
	require.Empty(s.t, wrong)
	require.NotZero(s.t, writes)
	s.t.Logf("%d guarded writes, %d changes of an owner", writes, len(changes))
}
