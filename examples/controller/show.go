package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/session"
)

// show is what the story has on stage.
type show struct {
	e        *stage.Etcd
	sessions *session.Keeper // of none: only needed to make an Election, which observes without
	election *etcdlock.Election
	clouds   map[string]*cloud
	replicas map[string]*running
	desired  int
	parting  chan struct{} // closed when observe has returned
	stop     context.CancelFunc

	mu    sync.Mutex // guards those below
	terms []term     // as observed
	lines []string   // that the replicas have said
}

// running is a replica, and the address of its status.
type running struct {
	*stage.Process
	url    string
	silent chan struct{} // closed when its last line has been passed on
}

// term is one leader's.
type term struct {
	etcdlock.Leader
	from  time.Time
	until time.Time     // zero: it still leads
	after time.Duration // of what ended the term before
	why   string        // of its own end; empty if it was not the story's doing
}

func newShow(ctx context.Context, e *stage.Etcd) *show {
	s := &show{
		e: e, sessions: session.Keep(e.Client), clouds: map[string]*cloud{}, replicas: map[string]*running{},
		parting: make(chan struct{}),
	}
	s.election = newElection(s.sessions, e.Prefix)
	for _, name := range names {
		s.clouds[name] = newCloud()
	}
	observing, stop := context.WithCancel(ctx)
	s.stop = stop
	go s.observe(observing)
	return s
}

func (s *show) close() error {
	s.stop()
	<-s.parting
	for _, r := range s.replicas { // if something went wrong
		_ = r.Kill()
		<-r.silent
	}
	for _, c := range s.clouds {
		c.stop()
	}
	return s.sessions.Close(context.Background()) // it has none
}

func (s *show) observe(ctx context.Context) {
	defer close(s.parting)
	for leader, err := range s.election.Observe(ctx) {
		s.mu.Lock()
		now := time.Now()
		if n := len(s.terms); n > 0 && s.terms[n-1].until.IsZero() {
			s.terms[n-1].until = now
		}
		if err == nil && !leader.Vacant() {
			s.terms = append(s.terms, term{Leader: leader, from: now})
		}
		s.mu.Unlock()
	}
}

func (s *show) leader() etcdlock.Leader {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.terms); n > 0 && s.terms[n-1].until.IsZero() {
		return s.terms[n-1].Leader
	}
	return etcdlock.Leader{}
}

// next ends a term, and waits until another replica leads.
func (s *show) next(ctx context.Context, why string, end func(etcdlock.Leader) error) (last, next etcdlock.Leader, took time.Duration, err error) {
	last = s.leader()
	began := time.Now()
	if err := end(last); err != nil {
		return last, next, 0, err
	}
	err = until(ctx, "somebody else to lead than "+last.Value, func() (bool, error) {
		next = s.leader()
		return next.Token > last.Token && next.Value != last.Value &&
			s.said(fmt.Sprintf("%s leads, with token %d", next.Value, next.Token)), nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, t := range s.terms {
		switch t.Token {
		case last.Token:
			s.terms[i].why = why
		case next.Token:
			took = t.from.Sub(began).Round(time.Millisecond)
			s.terms[i].after = took
		}
	}
	return last, next, took, err
}

// said reports whether a replica has said something like that.
func (s *show) said(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.lines, func(line string) bool { return strings.Contains(line, what) })
}

func (s *show) start(ctx context.Context, name string) error {
	p, err := s.e.Start(ctx, name, "replica", options{
		Name: name, Prefix: s.e.Prefix, Listen: "127.0.0.1:0", Cloud: s.clouds[name].url, TTL: ttl,
	})
	if err != nil {
		return err
	}
	first := <-p.Lines
	_, address, ok := strings.Cut(first, "http://")
	if !ok {
		return errors.Join(fmt.Errorf("%s does not say where it serves: %q", name, first), p.Wait())
	}
	address, _, _ = strings.Cut(address, "/")
	r := &running{Process: p, url: "http://" + address, silent: make(chan struct{})}
	s.replicas[name] = r
	s.e.Printf("%s\n", first)
	go func() {
		defer close(r.silent)
		for line := range p.Lines {
			s.e.Printf("%s\n", line)
			s.mu.Lock()
			s.lines = append(s.lines, line)
			s.mu.Unlock()
		}
	}()
	return nil
}

func (s *show) terminate(name string) error {
	r := s.replicas[name]
	delete(s.replicas, name)
	if err := r.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-r.silent
	return r.Wait()
}

func (s *show) kill(name string) error {
	r := s.replicas[name]
	delete(s.replicas, name)
	if err := r.Kill(); err != nil {
		return err
	}
	<-r.silent
	if r.Wait() == nil {
		return fmt.Errorf("%s was killed and ended well", name)
	}
	return nil
}

// leave stops the replicas that stand by before the leader, so that none takes over.
func (s *show) leave(ctx context.Context) error {
	leader := s.leader().Value
	for _, name := range names {
		if s.replicas[name] != nil && name != leader {
			if err := s.terminate(name); err != nil {
				return err
			}
		}
	}
	if err := s.terminate(leader); err != nil {
		return err
	}
	err := until(ctx, "nobody to lead", func() (bool, error) { return s.leader().Vacant(), nil })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.terms[len(s.terms)-1].why = "the end"
	return err
}

// inLine waits until name leads or stands by.
func (s *show) inLine(ctx context.Context, name string) error {
	return until(ctx, name+" to be in line", func() (bool, error) {
		candidates, err := s.election.Candidates(ctx)
		return s.leader().Value == name ||
			slices.ContainsFunc(candidates, func(c etcdlock.Leader) bool { return c.Value == name }), err
	})
}

// agree waits until the status endpoints of all replicas name the leader.
func (s *show) agree(ctx context.Context, leader string) error {
	for name, r := range s.replicas {
		err := until(ctx, name+" to know of "+leader, func() (bool, error) {
			var report leaderReport
			answer, err := get(ctx, r.url+"/leader")
			if err != nil {
				return false, err
			}
			defer answer.Body.Close()
			err = json.NewDecoder(answer.Body).Decode(&report)
			return report.Leader == leader && report.Self == (name == leader), err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// health returns what a replica's /healthz answers.
func (s *show) health(ctx context.Context, name string) int {
	answer, err := get(ctx, s.replicas[name].url+"/healthz")
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

func get(ctx context.Context, url string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(request)
}

// until looks again and again, as a monitor does.
func until(ctx context.Context, what string, look func() (bool, error)) error {
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for {
		if ok, err := look(); ok || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
}
