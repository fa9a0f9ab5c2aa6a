package main

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"
)

const requestTime = 20 * time.Millisecond

// backend serves as many users at a time as there are licences, refuses all others, and counts.
type backend struct {
	*httptest.Server
	licences int

	mu    sync.Mutex // guards those below
	stats stats
	stuck string // requests of this process are not answered
	// everybody is closed when that many users are there; all are made to wait for it.
	expected  int
	everybody chan struct{}
}

// stats are what the backend has seen. A user counts while it is there, even if it is refused.
type stats struct {
	users, mostUsers int
	mostAtShard      int // at one shard at a time
	served, refused  int
	stuckAt          []int         // shards
	there            map[place]int // users
	servedTo         map[string]int
	servedShard      map[int]int
}

// place is where a user is.
type place struct {
	process string
	shard   int
}

func newBackend(licences, expected int) *backend {
	b := &backend{licences: licences, expected: expected, everybody: make(chan struct{})}
	b.stats = stats{there: map[place]int{}, servedTo: map[string]int{}, servedShard: map[int]int{}}
	if expected == 0 {
		close(b.everybody)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{name}/{shard}", func(w http.ResponseWriter, r *http.Request) {
		shard, err := strconv.Atoi(r.PathValue("shard"))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.WriteHeader(b.serve(r, place{r.PathValue("name"), shard}))
	})
	b.Server = httptest.NewServer(mux)
	return b
}

// serve returns the status to answer with. By then the user has left.
func (b *backend) serve(r *http.Request, p place) int {
	admitted, stuck := b.enter(p)
	served := false
	defer func() { b.leave(p, served) }()
	select {
	case <-b.everybody:
	case <-r.Context().Done():
	}
	if !admitted {
		return http.StatusTooManyRequests
	}
	if stuck {
		<-r.Context().Done()
		return http.StatusOK
	}
	time.Sleep(requestTime)
	served = true
	return http.StatusOK
}

func (b *backend) enter(p place) (admitted, stuck bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.stats
	s.users++
	s.there[p]++
	s.mostUsers = max(s.mostUsers, s.users)
	atShard := 0
	for other, users := range s.there {
		if other.shard == p.shard {
			atShard += users
		}
	}
	s.mostAtShard = max(s.mostAtShard, atShard)
	if s.users == b.expected {
		close(b.everybody)
	}
	if s.users > b.licences {
		s.refused++
		return false, false
	}
	if p.process == b.stuck {
		s.stuckAt = append(s.stuckAt, p.shard)
		return true, true
	}
	return true, false
}

func (b *backend) leave(p place, served bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.stats
	s.users--
	s.there[p]--
	if served {
		s.served++
		s.servedTo[p.process]++
		s.servedShard[p.shard]++
	}
}

func (b *backend) setStuck(process string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stuck = process
}

// look has f look at what the backend has seen.
func (b *backend) look(f func(stats)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(b.stats)
}

// gone reports whether no user of a process is there.
func (s stats) gone(process string) bool {
	for p, users := range s.there {
		if p.process == process && users > 0 {
			return false
		}
	}
	return true
}

func (b *backend) stop() {
	b.CloseClientConnections() // those that are stuck would be waited for
	b.Close()
}
