package embedtest

import (
	"net"
	"sync"

	"google.golang.org/grpc/test/bufconn"
)

// cuttingListener can close every connection that it has accepted. A gRPC server
// cannot: it waits for connections that have not sent their preface yet.
type cuttingListener struct {
	net.Listener

	mu    sync.Mutex
	conns map[net.Conn]struct{} // nil after cut
}

// listenForClients listens at the socket, or in memory in virtual time.
func (s settings) listenForClients(path string) (*cuttingListener, error) {
	l := &cuttingListener{conns: map[net.Conn]struct{}{}}
	if s.virtualTime {
		l.Listener = bufconn.Listen(memoryBytes)
		return l, nil
	}
	var err error
	if l.Listener, err = net.Listen("unix", path); err != nil {
		return nil, err
	}
	return l, nil
}

// Accept is called by the gRPC server.
func (l *cuttingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	l.conns[conn] = struct{}{}
	return &acceptedConn{Conn: conn, listener: l}, nil
}

// cut closes the listener and all its connections, and waits for nobody.
func (l *cuttingListener) cut() {
	_ = l.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		_ = conn.Close()
	}
	l.conns = nil
}

type acceptedConn struct {
	net.Conn
	listener *cuttingListener
}

func (c *acceptedConn) Close() error {
	c.listener.mu.Lock()
	delete(c.listener.conns, c.Conn)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
