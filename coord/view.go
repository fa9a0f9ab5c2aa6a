package coord

import (
	"cmp"
	"encoding/json"

	"github.com/etcdlock/locks/etcdlock"
)

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
	peers   roster
	members []candidate // those that count, in the order in which they joined
	joined  []etcdlock.Token
	owners  []owner
	waiting []map[string]bool // ids that are in line, for each shard; nil: none
}

func (s *Shards) newView() view {
	return view{owners: make([]owner, s.count), waiting: make([]map[string]bool, s.count)}
}

// update takes in the lines that have changed, for the member with that id. If an older member has declared another number of
// shards, it is an error.
func (v *view) update(s *Shards, id string, keys tree, changed map[string]bool) error {
	for folder := range changed {
		if shard, ok := s.shardOf(folder); ok {
			v.owners[shard], v.waiting[shard] = owner{}, nil
			for i, e := range keys.line(folder) {
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
	}
	if !v.peers.updateAll(keys, changed, s.shards()+"members/") {
		return nil
	}
	return v.count(id)
}

// count finds out which members count: not those that have declared another number of shards than the first, nor what no
// member has written.
func (v *view) count(id string) error {
	v.members, v.joined = nil, nil
	first := ""
	declared := declaration{}
	for _, p := range v.peers {
		var d declaration
		if json.Unmarshal([]byte(p.Value), &d) != nil || d.Weight < 1 || d.Weight > largestWeight {
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
			return &CountError{What: "shards", ID: id, Count: d.Shards, Other: first, Declared: declared.Shards}
		}
	}
	return nil
}

// decide returns the shards that the member with that id should own or wait for, and of the others those that it may not
// give up yet, since the next owner is not in line.
func (v *view) decide(id string) (own, keep map[int]bool) {
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
