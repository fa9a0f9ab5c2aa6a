package embedtest

import (
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
)

// soleMemberURL names a member that has no peers. Nothing ever dials it.
const soleMemberURL = "http://127.0.0.1:1"

// peerServer is the address at which a member's peers find it. It listens from
// the cluster's start to its end, also while the member is down, so that nobody
// else can take the port; then, and while the member is isolated, it drops every
// connection on which a request comes in. A nil peerServer is that of a cluster
// of one.
type peerServer struct {
	listener net.Listener
	server   *http.Server
	served   chan struct{} // closed when Serve has returned

	handler  atomic.Pointer[http.Handler] // nil while the member is down
	isolated atomic.Bool
}

func listenForPeers(address string) (*peerServer, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	p := &peerServer{listener: listener, served: make(chan struct{})}
	p.server = &http.Server{Handler: p, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { // ends with close
		defer close(p.served)
		_ = p.server.Serve(listener)
	}()
	return p, nil
}

// ServeHTTP is called by the HTTP server.
func (p *peerServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	handler := p.handler.Load()
	if handler == nil || p.isolated.Load() {
		panic(http.ErrAbortHandler) // the way to have the connection dropped
	}
	(*handler).ServeHTTP(w, r)
}

func (p *peerServer) url() string {
	if p == nil {
		return soleMemberURL
	}
	return "http://" + p.address()
}

func (p *peerServer) address() string { return p.listener.Addr().String() }

// serve hands the requests to h from now on, or to nobody if h is nil.
func (p *peerServer) serve(h http.Handler) {
	switch {
	case p == nil:
	case h == nil:
		p.handler.Store(nil)
	default:
		p.handler.Store(&h)
	}
}

func (p *peerServer) isolate(isolated bool) {
	if p != nil {
		p.isolated.Store(isolated)
	}
}

func (p *peerServer) close() {
	if p == nil {
		return
	}
	_ = p.server.Close()
	<-p.served
}
