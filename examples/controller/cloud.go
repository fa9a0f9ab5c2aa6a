package main

import (
	"net/http"
	"net/http/httptest"
	"sync"
)

// cloud stands for what a replica depends on. Each has its own, as each has its own network.
type cloud struct {
	url     string
	stop    func()
	arrived chan struct{} // an order has come in and is being held

	mu     sync.Mutex    // guards those below
	sick   bool          // it says that it is not well
	answer chan struct{} // not nil: an order waits until it is closed
}

func newCloud() *cloud {
	c := &cloud{arrived: make(chan struct{}, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.sick {
			http.Error(w, "sick", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("POST /fleet", func(_ http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		answer := c.answer
		c.mu.Unlock()
		if answer != nil {
			c.arrived <- struct{}{}
			select {
			case <-answer:
			case <-r.Context().Done():
			}
		}
	})
	server := httptest.NewServer(mux)
	c.url, c.stop = server.URL, server.Close
	return c
}

func (c *cloud) setSick(sick bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sick = sick
}

// hang makes orders wait until the returned function is called.
func (c *cloud) hang() (goOn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := make(chan struct{})
	c.answer = answer
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.answer = nil
		close(answer)
	}
}
