package fairqueue

import (
	"fmt"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Mode says which tickets can own together. It is the first letter of its key, and
// none that a number in hexadecimal begins with. Only Upgradeable is in no key.
type Mode byte

const (
	// Exclusive tickets own alone.
	Exclusive Mode = 'x'
	// Shared tickets own together with shared ones that stand next to them.
	Shared Mode = 's'
	// Upgradeable tickets own together with shared ones, and alone after [Ticket.Upgrade]. Their keys are those of
	// exclusive tickets, with a mark.
	Upgradeable Mode = 'u'
	// Candidate tickets own alone, have a value of the caller's and a priority, and can
	// be passed over; see [Ticket.PassTo].
	Candidate Mode = 'l'
	// permit tickets own together up to a sum of weights; see [Queue.JoinPermits].
	permit Mode = 'p'
)

// mustBeJoinable panics unless the mode is all that a ticket needs: those for permits need more, and any other
// letter makes a key that may not even be in the queue.
func (m Mode) mustBeJoinable() {
	switch m {
	case Exclusive, Shared, Upgradeable, Candidate:
	default:
		panic(fmt.Sprintf("fairqueue: no ticket can have mode %q", byte(m)))
	}
}

func (m Mode) strategy() strategy {
	switch m {
	case Shared, Upgradeable:
		return inOrder{}
	case Candidate:
		return candidate{}
	}
	return exclusive{} // permits have one of their own
}

func (m Mode) String() string {
	switch m {
	case Shared:
		return "shared"
	case Upgradeable:
		return "upgradeable"
	case Candidate:
		return "candidate"
	case permit:
		return "permit"
	}
	return "exclusive"
}

// space is the set of keys that begin with the queue's prefix and a slash.
type space string

// key is the name of a ticket. The number, which only permits and candidates have, is left
// out if it is 0.
func (s space) key(m Mode, lease clientv3.LeaseID, slot int, number int64) string {
	if m == Upgradeable {
		m = Exclusive
	}
	key := fmt.Sprintf("%s%c%x-%x", string(s), m, int64(lease), slot)
	if number != 0 {
		key += fmt.Sprintf("-%x", number)
	}
	return key
}

// mode returns what a key is to the queue; ok is false if it is not directly in it.
func (s space) mode(key string) (m Mode, ok bool) {
	name, ok := strings.CutPrefix(key, string(s))
	if !ok || strings.Contains(name, "/") {
		return 0, false
	}
	if name != "" {
		switch m := Mode(name[0]); m {
		case Shared, Candidate, permit:
			return m, true
		}
	}
	return Exclusive, true
}

// parts takes a ticket's name apart again; ok is false if it is not one of ours.
func (s space) parts(key string) (lease clientv3.LeaseID, number int64, ok bool) {
	name, ok := strings.CutPrefix(key, string(s))
	if !ok || name == "" || !strings.ContainsRune("xslp", rune(name[0])) {
		return 0, 0, false
	}
	var numbers [3]int64
	fields := strings.Split(name[1:], "-")
	if len(fields) < 2 || len(fields) > 3 {
		return 0, 0, false
	}
	for i, field := range fields {
		n, err := strconv.ParseInt(field, 16, 64)
		if err != nil || n < 0 {
			return 0, 0, false
		}
		numbers[i] = n
	}
	return clientv3.LeaseID(numbers[0]), numbers[2], true
}

// blocks reports whether a ticket, seen as e, keeps a later one of mode m waiting.
func (s space) blocks(e entry, m Mode) bool {
	mode, ok := s.mode(e.key)
	switch m {
	case Shared:
		return ok && mode != Shared && (mode != Exclusive || !e.marked)
	case Upgradeable:
		return ok && mode != Shared
	}
	return ok
}

// span is a range of keys, from first to just before end.
type span struct{ first, end string }

// vacant is a comparison that holds if there is no key in it: for each it would have to hold, and none was
// created at 0.
func (s span) vacant() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(s.first), "=", 0).WithRange(s.end)
}

// get reads it.
func (s span) get(options ...clientv3.OpOption) clientv3.Op {
	return clientv3.OpGet(s.first, append(options, clientv3.WithRange(s.end))...)
}

func (s space) all() span {
	return span{string(s), clientv3.GetPrefixRangeEnd(string(s))}
}

// shared has the shared tickets, and perhaps keys of queues below this one.
func (s space) shared() span {
	first := string(s) + string(rune(Shared))
	return span{first, clientv3.GetPrefixRangeEnd(first)}
}

// blocking lists the spans in which everything that blocks mode m is found, and
// nothing directly in the queue that can never block it.
func (s space) blocking(m Mode) []span {
	all, shared := s.all(), s.shared()
	if m != Shared && m != Upgradeable {
		return []span{all}
	}
	return []span{{all.first, shared.first}, {shared.end, all.end}}
}
