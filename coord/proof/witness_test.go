package proof_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

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

// change is another first in line than the last one.
type change struct {
	revision int64
	shard    int
	from, to string
}

// replay goes through the history up to a revision; 0 is all. It returns the changes, and the guarded writes that were not
// made by the first in line, both of after a revision.
func (s *scene) replay(after, until int64) (changes []change, wrong []string, writes int) {
	now, last := newState(), map[string]string{}
	recorded, err := s.witness.Changes(0)
	require.NoError(s.t, err)
	for _, c := range recorded {
		if until > 0 && c.Revision > until {
			break
		}
		for _, e := range c.Events { // of the state before
			shard := strings.TrimPrefix(string(e.Kv.Key), "work/")
			if _, err := strconv.Atoi(shard); err != nil || c.Revision <= after {
				continue
			}
			writes++
			if line := now.lines[shard]; len(line) == 0 || strconv.FormatInt(line[0].token, 10) != string(e.Kv.Value) {
				wrong = append(wrong, fmt.Sprintf("%s at %d by %s", e.Kv.Key, c.Revision, e.Kv.Value))
			}
		}
		for _, e := range c.Events {
			if e.Type == clientv3.EventTypeDelete {
				now.remove(string(e.Kv.Key))
			} else {
				now.put(string(e.Kv.Key), e.Kv)
			}
		}
		for _, e := range c.Events {
			queue, _ := queueOf(string(e.Kv.Key))
			line := now.lines[queue]
			shard, err := strconv.Atoi(queue)
			if err != nil || len(line) == 0 || last[queue] == line[0].id {
				continue
			}
			if before := last[queue]; before != "" && c.Revision > after {
				changes = append(changes, change{c.Revision, shard, before, line[0].id})
			}
			last[queue] = line[0].id
		}
	}
	return changes, wrong, writes
}

// upTo waits until the witness has seen what is in etcd by now, and returns its revision.
func (s *scene) upTo() (revision int64) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	revision, err := s.witness.CatchUp(ctx)
	require.NoError(s.t, err)
	return revision
}

// history returns all changes.
func (s *scene) history() []embedtest.Change {
	s.t.Helper()
	s.upTo()
	changes, err := s.witness.Changes(0)
	require.NoError(s.t, err)
	return changes
}

// check checks the history after a revision.
func (s *scene) check(after int64) {
	s.t.Helper()
	s.upTo()
	changes, wrong, writes := s.replay(after, 0)
	require.Empty(s.t, wrong)
	require.NotZero(s.t, writes)
	s.t.Logf("%d guarded writes, %d changes of an owner", writes, len(changes))
}
