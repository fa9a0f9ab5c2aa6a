package fairqueue

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// list is what one read of several brought back.
type list struct {
	entries []entry
	more    bool  // it was cut off
	count   int64 // of all in the range; where there was a limit, perhaps not
}

// read makes one request of the given reads, whose answers are all true at the revision
// that it returns.
func read(ctx context.Context, s *session.Session, reads ...clientv3.Op) (lists []list, revision int64, err error) {
	answer, err := s.Link().Read(ctx, reads...)
	if err != nil {
		return nil, 0, err
	}
	return listsOf(answer.Responses), answer.Header.Revision, nil
}

func listsOf(responses []*etcdserverpb.ResponseOp) []list {
	lists := make([]list, len(responses))
	for i, response := range responses {
		r := response.GetResponseRange()
		lists[i] = list{entriesOf(r.Kvs), r.More, r.Count}
	}
	return lists
}

func entriesOf(kvs []*mvccpb.KeyValue) []entry {
	entries := make([]entry, len(kvs))
	for i, kv := range kvs {
		entries[i] = entry{string(kv.Key), kv.CreateRevision, isMarked(kv.Value)}
	}
	return entries
}

// contains reports whether the list has that very ticket, marked or not as it was.
func (l list) contains(e entry) bool {
	return slices.Contains(l.entries, e)
}

// present checks whether tickets are there, as they were.
func (p *part) present(tickets ...entry) check {
	return func(ctx context.Context, minRevision int64) (there bool, at int64, err error) {
		at, err = p.asOf(minRevision, func(local bool) (int64, error) {
			reads := make([]clientv3.Op, len(tickets))
			for i, e := range tickets {
				reads[i] = clientv3.OpGet(e.key, p.mode.readOptions(local)...)
			}
			lists, revision, err := read(ctx, p.session, reads...)
			there = err == nil
			for i, l := range lists {
				there = there && l.contains(tickets[i])
			}
			return revision, err
		})
		return there, at, err
	}
}

// asOf asks any member, however far behind it is, and the quorum if the answer is older than minRevision. Ask returns
// the revision of its answer. If the quorum's is older, etcd has gone back, and the session ends.
func (p *part) asOf(minRevision int64, ask func(local bool) (at int64, err error)) (at int64, err error) {
	for _, local := range []bool{true, false} {
		if at, err = ask(local); err != nil || at >= minRevision {
			return at, err
		}
	}
	return at, p.link().WentBack(minRevision, at)
}

// readOptions are for reads that a ticket of mode m makes: of keys only, which etcd serves
// from memory, unless marks matter to it. Local ones may be answered by any member,
// however far behind it is.
func (m Mode) readOptions(local bool) []clientv3.OpOption {
	options := make([]clientv3.OpOption, 0, 6)
	if m != Shared {
		options = append(options, clientv3.WithKeysOnly())
	}
	if local {
		options = append(options, clientv3.WithSerializable())
	}
	return options
}
