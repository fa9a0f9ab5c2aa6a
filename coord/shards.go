package coord

import (
	"context"
	"hash/fnv"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// Shards are the parts of some work, numbered from 0. One member at a time works on each. All members have equal shares,
// or shares by their weights ([WithWeight]). Shards are safe for concurrent use.
type Shards struct {
	common
	count int
}

// NewShards returns the n shards of name, whose members and owners are bound to sessions from src. All members must give
// the same n, see [CountError]. No request is made; a name that cannot be one is reported by the first call
// ([etcdlock.ErrInvalidName]). It panics if n is not between 1 and 10,000, or src is nil. Each shard costs its owner a
// lock, a watch, and two or three small requests about every 10 s.
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

// Owners returns the owner of each shard, all at one revision. It costs one read for each 500 members and shards. It needs no
// session, and the caller need not be a member.
func (s *Shards) Owners(ctx context.Context) ([]Owner, error) {
	if err := s.ready(ctx); err != nil {
		return nil, s.failed("owners", err)
	}
	owners := make([]Owner, s.count)
	err := s.read(ctx, s.shards(), func(keys tree, changed map[string]bool) { s.updateOwners(owners, keys, changed) })
	if err != nil {
		return nil, s.failed("owners", err)
	}
	return owners, nil
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
		owners, first := make([]Owner, s.count), true
		observe(ctx, &s.common, s.shards(), func(keys tree, changed map[string]bool) bool {
			news := s.updateOwners(owners, keys, changed) || first
			first = false
			return news
		}, func(err error) bool {
			if err != nil {
				return yield(nil, err)
			}
			return yield(slices.Clone(owners), nil)
		})
	}
}

func (s *Shards) shards() string { return s.folder + "/shards/" }

func (s *Shards) memberships() memberships {
	return memberships{s.source, s.folder + "/shards/members"}
}

// lock is that of a shard, for the member with that id.
func (s *Shards) lock(shard int, id string) *etcdlock.Mutex {
	return etcdlock.NewMutex(s.source, strconv.Itoa(shard), etcdlock.WithNamespace(s.folder+"/shards"), etcdlock.WithLabel(id))
}

// shardOf returns the number of the shard whose line is a folder.
func (s *Shards) shardOf(folder string) (shard int, ok bool) {
	number := strings.TrimSuffix(strings.TrimPrefix(folder, s.shards()), "/")
	shard, err := strconv.Atoi(number)
	return shard, err == nil && shard >= 0 && shard < s.count && strconv.Itoa(shard) == number
}

// updateOwners takes in the lines that have changed, and reports whether owners have.
func (s *Shards) updateOwners(owners []Owner, keys tree, changed map[string]bool) (news bool) {
	for folder := range changed {
		if shard, ok := s.shardOf(folder); ok {
			before := owners[shard]
			owners[shard] = Owner{}
			if line := keys.line(folder); len(line) > 0 {
				owners[shard] = Owner{line[0].Owner.Label, etcdlock.Token(line[0].Revision)}
			}
			news = news || owners[shard] != before
		}
	}
	return news
}
