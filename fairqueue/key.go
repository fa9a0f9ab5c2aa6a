package fairqueue

import (
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Mode says with whom a ticket can own together.
type Mode byte

const (
	// Exclusive tickets own alone.
	Exclusive Mode = 'x'
	// Shared tickets own together with shared ones that stand next to them.
	Shared Mode = 's'
)

func (m Mode) String() string {
	if m == Shared {
		return "shared"
	}
	return "exclusive"
}

// space is the set of keys that begin with the queue's prefix and a slash.
type space string

func (s space) key(m Mode, lease clientv3.LeaseID, slot int) string {
	return string(s) + string(rune(m)) + strconv.FormatInt(int64(lease), 16) + "-" + strconv.FormatInt(int64(slot), 16)
}

// mode tells what a key is to the queue; ok is false if it is not directly in it.
func (s space) mode(key string) (m Mode, ok bool) {
	name, ok := strings.CutPrefix(key, string(s))
	switch {
	case !ok || strings.Contains(name, "/"):
		return 0, false
	case strings.HasPrefix(name, string(rune(Shared))):
		return Shared, true
	}
	return Exclusive, true
}

// blocks reports whether a ticket at key keeps a later one of mode m waiting.
func (s space) blocks(key string, m Mode) bool {
	mode, ok := s.mode(key)
	return ok && (m == Exclusive || mode == Exclusive)
}

// span is a range of keys, from first to just before end.
type span struct{ first, end string }

func (s space) all() span {
	return span{string(s), clientv3.GetPrefixRangeEnd(string(s))}
}

// blocking lists the spans in which everything that blocks mode m is found, and
// nothing directly in the queue that does not.
func (s space) blocking(m Mode) []span {
	all := s.all()
	if m == Exclusive {
		return []span{all}
	}
	shared := string(s) + string(rune(Shared))
	return []span{{all.first, shared}, {clientv3.GetPrefixRangeEnd(shared), all.end}}
}
