package main

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"

	"github.com/etcdlock/locks/etcdlock"
)

// storage is a small server that keeps accounts. It knows nothing of locks. It only refuses a request for a
// fenced account if its token is lower than one that it has seen there. Fences and balances
// end with the process.
type storage struct {
	mu       sync.Mutex // guards the balances, and keeps a fence and its balance together
	accounts map[string]*account

	// Alice's call that takes so long; see pause in clerk.go.
	paused, resume chan struct{}
}

type account struct {
	balance int
	fence   *etcdlock.Fence // nil: none
}

func newStorage(opening int) *storage {
	return &storage{
		accounts: map[string]*account{
			"plain":  {balance: opening},
			"fenced": {balance: opening, fence: new(etcdlock.Fence)},
		},
		paused: make(chan struct{}), resume: make(chan struct{}),
	}
}

// serve returns the address, and a function to stop.
func (s *storage) serve() (url string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /account/{id}", s.account)
	mux.HandleFunc("PUT /account/{id}", s.account)
	mux.HandleFunc("GET /pause", s.pause)
	server := &http.Server{Handler: mux}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // until it is closed
	}()
	return "http://" + listener.Addr().String(), func() { _ = server.Close(); <-served }, nil
}

func (s *storage) account(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 32))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.accounts[r.PathValue("id")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	// Reads of a holder are asked for the token as well: then no older holder can write between
	// what this one reads and what it writes. Others may read without.
	if header := r.Header.Get(tokenHeader); a.fence != nil && (r.Method == http.MethodPut || header != "") {
		token, err := strconv.ParseInt(header, 10, 64)
		if err != nil {
			http.Error(w, "this account takes a "+tokenHeader, http.StatusPreconditionRequired)
			return
		}
		if err := a.fence.Admit(etcdlock.Token(token)); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
	}
	if r.Method == http.MethodPut {
		balance, err := strconv.Atoi(string(body))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a.balance = balance
	}
	_, _ = io.WriteString(w, strconv.Itoa(a.balance)) // a client that is gone does not need it
}

func (s *storage) pause(_ http.ResponseWriter, r *http.Request) {
	select {
	case s.paused <- struct{}{}:
	case <-r.Context().Done():
		return
	}
	select {
	case <-s.resume:
	case <-r.Context().Done():
	}
}
