package embedtest

import (
	"bytes"
	"net"
	"sync"
	"time"
)

const (
	queueBytes = 4 << 20 // held back per direction before writes block
	readBytes  = 32 << 10
)

// linkConn is one connection through a link: the client talks to one end of a
// pipe, and two streams carry the bytes between the pipe's other end and the
// server. Their goroutines end when both ends have closed, or at reset.
type linkConn struct {
	client net.Conn
	server net.Conn

	dead      chan struct{} // closed by reset
	resetOnce sync.Once
}

// startConn requires the link's mu. It returns the client's end.
func (l *Link) startConn(p *path, server net.Conn) net.Conn {
	clientEnd, linkEnd := net.Pipe()
	conn := &linkConn{client: linkEnd, server: server, dead: make(chan struct{})}
	p.conns[conn] = struct{}{}

	var goroutines sync.WaitGroup
	for _, ends := range [][2]net.Conn{{linkEnd, server}, {server, linkEnd}} {
		s := &stream{
			link: l, path: p, from: ends[0], to: ends[1], dead: conn.dead,
			arrived: make(chan struct{}, 1), room: make(chan struct{}, 1),
		}
		goroutines.Go(s.read)
		goroutines.Go(s.write)
	}
	l.conns.Go(func() {
		goroutines.Wait()
		l.mu.Lock()
		delete(p.conns, conn)
		l.mu.Unlock()
	})
	return clientEnd
}

// reset kills the connection in both directions, with what is on the way.
func (c *linkConn) reset() {
	c.resetOnce.Do(func() {
		close(c.dead)
		_ = c.client.Close()
		_ = c.server.Close()
	})
}

// stream is one direction of a connection. It reads at once whatever comes, so
// that a fault never blocks the sender, and writes it when the path lets it pass.
type stream struct {
	link     *Link
	path     *path
	from, to net.Conn
	dead     <-chan struct{}

	arrived chan struct{} // wakes write
	room    chan struct{} // wakes read

	mu      sync.Mutex
	packets []packet
	size    int
	gone    bool // to has failed: whatever comes is thrown away
}

// packet is what one read brought; without bytes it is the end of the stream,
// which a fault keeps back like everything else.
type packet struct {
	bytes   []byte
	arrived time.Time
}

func (s *stream) read() {
	buffer := make([]byte, readBytes)
	for {
		n, err := s.from.Read(buffer)
		if n > 0 && !s.push(packet{bytes.Clone(buffer[:n]), time.Now()}) {
			return
		}
		if err != nil {
			s.push(packet{nil, time.Now()})
			return
		}
	}
}

func (s *stream) write() {
	for {
		p, ok := s.next()
		if !ok || !s.link.pass(s.path, p.arrived, s.dead) {
			return
		}
		if p.bytes == nil {
			_ = s.to.Close()
			return
		}
		if _, err := s.to.Write(p.bytes); err != nil {
			s.abandon()
			return
		}
	}
}

// push waits for room and reports false if the connection died meanwhile.
func (s *stream) push(p packet) bool {
	for {
		s.mu.Lock()
		if s.gone || s.size < queueBytes {
			if !s.gone {
				s.packets = append(s.packets, p)
				s.size += len(p.bytes)
			}
			s.mu.Unlock()
			wake(s.arrived)
			return true
		}
		s.mu.Unlock()
		select {
		case <-s.room:
		case <-s.dead:
			return false
		}
	}
}

// next waits for a packet and reports false if the connection died meanwhile.
func (s *stream) next() (packet, bool) {
	for {
		s.mu.Lock()
		if len(s.packets) > 0 {
			p := s.packets[0]
			s.packets = s.packets[1:]
			s.size -= len(p.bytes)
			s.mu.Unlock()
			wake(s.room)
			return p, true
		}
		s.mu.Unlock()
		select {
		case <-s.arrived:
		case <-s.dead:
			return packet{}, false
		}
	}
}

func (s *stream) abandon() {
	s.mu.Lock()
	s.gone, s.packets = true, nil
	s.mu.Unlock()
	wake(s.room)
}

func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pass waits until the path lets a packet through and reports false if the
// connection died meanwhile.
func (l *Link) pass(p *path, arrived time.Time, dead <-chan struct{}) bool {
	for {
		l.mu.Lock()
		blackhole, delay, changed := p.blackhole, p.delay, l.changed
		l.mu.Unlock()
		rest := delay - time.Since(arrived)
		if !blackhole && rest <= 0 {
			return true
		}
		var due <-chan time.Time
		if !blackhole {
			due = time.After(rest)
		}
		select {
		case <-due:
		case <-changed:
		case <-dead:
			return false
		}
	}
}
