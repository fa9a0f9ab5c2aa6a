package coord

import (
	"cmp"
	"context"
	"encoding/json"
	"hash/fnv"
	"iter"
	"slices"
	"strconv"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// Shards are parts of some work, numbered from 0, each of which one member at a time does. All members have equal shares,
// or by their weights ([WithWeight]). It is safe for concurrent use.
type Shards struct {
	common
	count int
}

// NewShards returns the n shards of name, whose members and owners are bound to sessions from src. All members must give
// the same n, see [CountError]. No request is made; a name that cannot be one is reported by the first call
// ([etcdlock.ErrInvalidName]). It panics if n is not between 1 and 10,000, or src is nil. Each shard costs its owner a
// lock and a watch.
func NewShards(src session.Source, name string, n int, opts ...Option) *Shards {
	needCount("shards", n)
	return &Shards{newCommon(shards, src, name, opts), n}
}

// Count returns the number of shards.
func (s *Shards) Count() int { return s.count }

// Of returns the number of key's shard: its 64-bit FNV-1a hash modulo the number of shards, the same on every machine and
// in every version of this library.
func (s *Shards) Of(key string) int {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(key)) // never fails
	return int(hash.Sum64() % uint64(s.count))
}

// Owner is the owner of a shard as others see it. The zero value is none.
type Owner struct {
	ID    string
	Token etcdlock.Token // of its Hold
}

// Vacant reports whether there is no owner.
func (o Owner) Vacant() bool { return o.Token == 0 }

// Owners returns the owner of each shard: one read, of members and shards. It needs no session, and the caller need not
// be a member.
func (s *Shards) Owners(ctx context.Context) ([]Owner, error) {
	if err := s.ready(ctx); err != nil {
		return nil, s.failed("owners", err)
	}
	var owners []Owner
	l, err := s.read(ctx, s.shards())
	if err == nil {
		err = l.latest(func(entries map[string][]fairqueue.Entry, _ map[string]bool) { owners = s.ownersIn(entries) })
	}
	return owners, s.failed("owners", err)
}

// Observe yields the owner of each shard, and then again after every change, until ctx ends or the loop is left. Otherwise it
// is like [Group.Observe].
func (s *Shards) Observe(ctx context.Context) iter.Seq2[[]Owner, error] {
	err := s.ready(ctx)
	return func(yield func([]Owner, error) bool) {
		if err != nil {
			yield(nil, s.failed("observe", err))
			return
		}
		var last []Owner
		observe(ctx, &s.common, s.shards(), func(entries map[string][]fairqueue.Entry, _ map[string]bool) (changed bool) {
			owners := s.ownersIn(entries)
			changed = !slices.Equal(owners, last)
			last = owners
			return changed
		}, func(err error) bool {
			if err != nil {
				return yield(nil, err)
			}
			return yield(slices.Clone(last), nil)
		})
	}
}

func (s *Shards) shards() string { return s.folder + "/shards" }

func (s *Shards) memberships() memberships { return memberships{s.source, s.shards() + "/members"} }

// lock is that of a shard, for the member with that id.
func (s *Shards) lock(shard int, id string) *etcdlock.Mutex {
	return etcdlock.NewMutex(s.source, strconv.Itoa(shard), etcdlock.WithNamespace(s.shards()), etcdlock.WithLabel(id))
}

func (s *Shards) ownersIn(entries map[string][]fairqueue.Entry) []Owner {
	owners := make([]Owner, s.count)
	for shard := range owners {
		if line := entries[strconv.Itoa(shard)]; len(line) > 0 {
			owners[shard] = Owner{line[0].Owner.Label, etcdlock.Token(line[0].Revision)}
		}
	}
	return owners
}

// declaration is the value of a member.
type declaration struct {
	Shards int `json:"shards"`
	Weight int `json:"weight"`
}

func (s *Shards) declaration() string {
	text, err := json.Marshal(declaration{s.count, s.options.weight})
	if err != nil {
		panic("coord: " + err.Error()) // two numbers
	}
	return string(text)
}

// view is what is in etcd at one revision.
type view struct {
	members []candidate // that count, in the order in which they joined
	joined  []etcdlock.Token
	owners  []owner
	waiting []map[string]bool // ids that are in line, for each shard; nil: none
}

// viewOf returns the view of the member with that id. If an older member has declared another number of shards, it is an
// error. Younger ones with another number do not count.
func (s *Shards) viewOf(entries map[string][]fairqueue.Entry, id string) (v view, err error) {
	first := ""
	declared := declaration{}
	for _, p := range membersIn(entries, "members/") {
		var d declaration
		if json.Unmarshal([]byte(p.Value), &d) != nil || d.Weight < 1 {
			continue
		}
		if first == "" {
			first, declared = p.ID, d
		}
		switch {
		case d.Shards == declared.Shards:
			v.members = append(v.members, candidate{p.ID, d.Weight})
			v.joined = append(v.joined, p.Token)
		case p.ID == id:
			return view{}, &CountError{What: "shards", ID: id, Count: d.Shards, Other: first, Declared: declared.Shards}
		}
	}
	v.owners, v.waiting = make([]owner, s.count), make([]map[string]bool, s.count)
	for shard := range s.count {
		for i, e := range entries[strconv.Itoa(shard)] {
			if i == 0 {
				v.owners[shard] = owner{cmp.Or(e.Owner.Label, e.Key), e.Revision}
				continue
			}
			if v.waiting[shard] == nil {
				v.waiting[shard] = make(map[string]bool)
			}
			v.waiting[shard][e.Owner.Label] = true
		}
	}
	return v, nil
}

// sameMembers reports whether nothing has changed but owners and waiters.
func (v view) sameMembers(other view) bool {
	return slices.Equal(v.joined, other.joined)
}

// decide returns the shards that the member with that id should own or wait for, and of the others those that it may not
// give up yet, since the next owner is not in line.
func (v view) decide(id string) (own, keep map[int]bool) {
	own, keep = make(map[int]bool), make(map[int]bool)
	for shard, i := range assign(v.members, v.owners) {
		switch {
		case i == nobody:
		case v.members[i].id == id:
			own[shard] = true
		case v.owners[shard].id == id && !v.waiting[shard][v.members[i].id]:
			keep[shard] = true
		}
	}
	return own, keep
}
