package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
)

// proxy is the network between one client and a server that is not etcd, for black holes.
type proxy struct {
	dir      string // of the socket
	server   address
	listener net.Listener
	dark     chan struct{} // closed by blackhole
	darkness sync.Once

	mu     sync.Mutex
	closed bool
	conns  []net.Conn
}

// maybeProxied returns the address of the server, or of a proxy in front of it.
func maybeProxied(server address, faulty bool) (address, *proxy, error) {
	if !faulty {
		return server, nil, nil
	}
	p := &proxy{server: server, dark: make(chan struct{})}
	at := address{server.network, "127.0.0.1:0"}
	var err error
	if server.network == "unix" {
		if p.dir, err = os.MkdirTemp("", "lockbench-"); err != nil {
			return address{}, nil, fmt.Errorf("make a directory for a proxy: %w", err)
		}
		at.address = filepath.Join(p.dir, "proxy.sock")
	}
	if p.listener, err = net.Listen(at.network, at.address); err != nil {
		_ = os.RemoveAll(p.dir)
		return address{}, nil, fmt.Errorf("listen for a proxy: %w", err)
	}
	go p.serve()
	return address{at.network, p.listener.Addr().String()}, p, nil
}

func (p *proxy) serve() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial(p.server.network, p.server.address)
		if err != nil {
			_ = near.Close()
			continue
		}
		if !p.own(near, far) {
			return
		}
		go p.copy(far, near)
		go p.copy(near, far)
	}
}

// own has connections closed with the proxy.
func (p *proxy) own(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		for _, c := range conns {
			_ = c.Close()
		}
		return false
	}
	p.conns = append(p.conns, conns...)
	return true
}

// copy forwards until the black hole, which swallows all that comes after it.
func (p *proxy) copy(to, from net.Conn) {
	_, _ = io.Copy(gate{to, p.dark}, from)
	select {
	case <-p.dark:
		_, _ = io.Copy(io.Discard, from)
	default: // one end has gone, and so does the other
		_ = to.Close()
		_ = from.Close()
	}
}

// gate is a writer that is shut by a black hole.
type gate struct {
	io.Writer
	dark <-chan struct{}
}

func (g gate) Write(b []byte) (int, error) {
	select {
	case <-g.dark:
		return 0, io.ErrClosedPipe
	default:
		return g.Writer.Write(b)
	}
}

func (p *proxy) blackhole() { p.darkness.Do(func() { close(p.dark) }) }

func (p *proxy) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	_ = p.listener.Close()
	for _, c := range p.conns {
		_ = c.Close()
	}
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
}
