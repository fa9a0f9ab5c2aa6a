package main

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/etcdlock/locks/etcdlock"
)

// leaderJSON is what "elect --http" serves at /, and "elect --listen -o json" prints. The old elector of
// Kubernetes had the first field. Fields are added, and keep their meaning.
type leaderJSON struct {
	Name  string `json:"name"` // empty in a vacancy
	Key   string `json:"key,omitempty"`
	Token int64  `json:"token,omitempty"`
	Self  bool   `json:"self"` // the name is this candidate's
}

func leaderOf(l etcdlock.Leader, id string) leaderJSON {
	return leaderJSON{Name: l.Value, Key: l.Key, Token: int64(l.Token), Self: id != "" && l.Value == id}
}

// leaderPage serves the leader's value.
type leaderPage struct {
	id     string
	leader atomic.Pointer[etcdlock.Leader]
	term   atomic.Pointer[etcdlock.Term] // that runs here
}

// serve serves until finish is called.
func (p *leaderPage) serve(ctx context.Context, address string, e *etcdlock.Election) (finish func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, mistake(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", p.health)
	mux.HandleFunc("GET /{$}", p.show)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	observing, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for leader, err := range e.Observe(observing) {
			if err == nil {
				p.leader.Store(&leader)
			}
		}
	}()
	return func() {
		stop()
		_ = server.Close()
		<-done
	}, nil
}

// health fails if a command still runs here although its term is over.
func (p *leaderPage) health(w http.ResponseWriter, _ *http.Request) {
	if t := p.term.Load(); t != nil && t.Err() != nil {
		http.Error(w, "the term is over and the command still runs", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

func (p *leaderPage) show(w http.ResponseWriter, _ *http.Request) {
	leader := p.leader.Load()
	if leader == nil {
		http.Error(w, "not known yet", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = printJSON(w, leaderOf(*leader, p.id))
}
