package metric

import (
	"sync"
	"time"

	"github.com/etcdlock/locks/session"
)

// window is how long a low is kept at least.
const window = time.Minute

// Trust is for how long sessions may be trusted. The zero value is ready. It is safe for concurrent use.
type Trust struct {
	mu      sync.Mutex
	keepers []*session.Keeper
	ttl     time.Duration // of the last sessions

	began           time.Time // of the current window
	current, before low
}

// low is the least of some durations.
type low struct {
	least time.Duration
	known bool
}

func (l *low) add(d time.Duration) {
	if !l.known || d < l.least {
		*l = low{d, true}
	}
}

// Reading is what a Trust knows at a moment.
type Reading struct {
	// Remaining is for how long the sessions may be trusted without another answer, the least of them; 0 if one of
	// the Keepers has no session.
	Remaining time.Duration
	Watched   bool // there are Keepers

	// Lowest is the least trust in the last minute, or somewhat longer: now, and whenever a renewal was answered or
	// failed. A Keeper without a session does not count.
	Lowest time.Duration
	Known  bool // there was a session

	// TTL is the longest of the sessions that the Keepers have, or had last.
	TTL time.Duration
}

// Watch adds Keepers.
func (t *Trust) Watch(keepers ...*session.Keeper) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keepers = append(t.keepers, keepers...)
}

// Renewed is for session.WithOnRenewal.
func (t *Trust) Renewed(r session.Renewal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.roll()
	t.current.add(max(0, r.Left))
}

// Read makes no request.
func (t *Trust) Read() Reading {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.roll()
	var remaining low
	var ttl time.Duration
	for _, k := range t.keepers {
		s, ok := k.Current()
		if !ok {
			remaining.add(0)
			continue
		}
		left := max(0, time.Until(s.Deadline()))
		remaining.add(left)
		t.current.add(left)
		ttl = max(ttl, s.TTL())
	}
	if ttl > 0 {
		t.ttl = ttl
	}
	lowest := t.before
	if t.current.known {
		lowest.add(t.current.least)
	}
	return Reading{remaining.least, remaining.known, lowest.least, lowest.known, t.ttl}
}

// roll begins a new window when the current one is over.
func (t *Trust) roll() {
	now := time.Now()
	switch age := now.Sub(t.began); {
	case age >= 2*window:
		t.before, t.current, t.began = low{}, low{}, now
	case age >= window:
		t.before, t.current, t.began = t.current, low{}, now
	}
}
