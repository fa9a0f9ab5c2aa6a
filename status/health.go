package status

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const (
	// askFor is how long a health check waits for a new session: those that ask have a limit of a second, usually.
	askFor = 300 * time.Millisecond
	// unknownTTL is that of a session if none has been seen. It is the default.
	unknownTTL = 15 * time.Second
	// leaderLimit bounds the read of a leader.
	leaderLimit = 2 * time.Second
)

// Health returns a handler that answers 200 (OK) as long as this process can take locks, and 503 (Service
// Unavailable) when keeper has had no session for the TTL of a session, or has been closed or drained. It does not
// depend on holding a lock or leading, since a rollout that waits for a new replica to lead would wait for ever. Use
// it for readiness. Do not use it for liveness, since a restart does not bring etcd back.
//
// If there is no session, a request waits up to a third of a second for keeper to create one, which goes on in the
// background. Otherwise it makes no request. Before the first session the TTL counts as 15 s, from the call of
// Health. A nil keeper panics.
func Health(keeper *session.Keeper) http.Handler {
	if keeper == nil {
		panic("status: Health needs a keeper")
	}
	return &health{keeper: keeper, ttl: unknownTTL, alive: time.Now()}
}

type health struct {
	keeper *session.Keeper

	mu    sync.Mutex
	last  *session.Session
	ttl   time.Duration
	alive time.Time // when there was a session, for sure
}

// ServeHTTP implements [http.Handler].
func (h *health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	s, ok := h.keeper.Current()
	var err error
	if !ok {
		ctx, cancel := context.WithTimeout(r.Context(), askFor)
		defer cancel()
		s, err = h.keeper.Session(ctx)
	}
	without, ttl := h.note(s, time.Now())
	switch {
	case errors.Is(err, session.ErrClosed), without >= ttl:
		http.Error(w, fmt.Sprintf("no session with etcd for %v: %v", without.Round(time.Second), err), http.StatusServiceUnavailable)
	case err != nil:
		_, _ = fmt.Fprintf(w, "ok, but no session with etcd for %v: %v\n", without.Round(time.Second), err)
	default:
		_, _ = w.Write([]byte("ok\n"))
	}
}

// note returns for how long there has been no session, and how long that may be. A session that is lost was alive until
// its deadline.
func (h *health) note(s *session.Session, now time.Time) (without, ttl time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case s != nil:
		h.last, h.ttl, h.alive = s, s.TTL(), now
	case h.last != nil && h.last.Deadline().After(h.alive):
		h.alive = h.last.Deadline()
	}
	return max(0, now.Sub(h.alive)), h.ttl
}

// leaderJSON has the form that "etcdlock elect --http" serves, and the old elector of Kubernetes served.
type leaderJSON struct {
	Name  string `json:"name"` // the leader's value; empty in a vacancy
	Key   string `json:"key,omitempty"`
	Token int64  `json:"token,omitempty"`
}

// Leader returns a handler that answers with the leader of an election as JSON, for clients that want to reach it:
//
//	{"name": "10.0.0.7:8080", "key": "etcdlock/controller/l694d-0", "token": 4711}
//
// The name is the value that the leader campaigns with, and is empty while no candidate leads. If etcd cannot be read
// the answer is 503 (Service Unavailable). A request costs one read, of 2 s at most. The answer may be old when it
// arrives. The token fences the leader's writes. A nil election panics.
func Leader(election *etcdlock.Election) http.Handler {
	if election == nil {
		panic("status: Leader needs an election")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		ctx, cancel := context.WithTimeout(r.Context(), leaderLimit)
		defer cancel()
		leader, err := election.Leader(ctx)
		if err != nil && !errors.Is(err, etcdlock.ErrNoLeader) {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		serveJSON(w, leaderJSON{Name: leader.Value, Key: leader.Key, Token: int64(leader.Token)})
	})
}
