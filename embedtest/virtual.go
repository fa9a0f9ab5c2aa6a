package embedtest

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing/synctest"

	"google.golang.org/grpc/test/bufconn"
)

const memoryBytes = 1 << 20 // on the way per connection and direction before writes block

// WithVirtualTime is for a cluster that is started inside a bubble of package
// testing/synctest, where time passes only while all wait, and then at once: hours of leases
// take a second. See Virtual time in the package documentation for how to use it. It has one
// member only. [Start] fails outside of a bubble. The default is real time.
func WithVirtualTime() Option {
	return optionFunc(func(s *settings) { s.virtualTime = true })
}

func (s settings) checkVirtualTime() error {
	switch {
	case !s.virtualTime:
		return nil
	case s.size > 1:
		return errors.New("embedtest: in virtual time there is one member only: the others would talk over the network, " +
			"and a goroutine that waits for the network does not count as blocked")
	case !inBubble():
		return errors.New("embedtest: WithVirtualTime is for a cluster that is started inside synctest.Test")
	}
	return nil
}

// inBubble asks in the only way there is: Wait panics elsewhere.
func inBubble() (inside bool) {
	defer func() { inside = recover() == nil }()
	synctest.Wait()
	return
}

// dial connects to the member that has the socket. In virtual time there is no socket: to package synctest
// a goroutine that waits for the network is not blocked.
func (c *Cluster) dial(ctx context.Context, endpoint string) (net.Conn, error) {
	name := socket(endpoint)
	if !c.settings.virtualTime {
		var dialer net.Dialer
		return dialer.DialContext(ctx, "unix", name)
	}
	if m := c.memberAt(name); m != nil {
		if p := m.process.Load(); p != nil {
			return p.listener.Listener.(*bufconn.Listener).DialContext(ctx)
		}
	}
	return nil, &net.OpError{Op: "dial", Net: "unix", Err: syscall.ECONNREFUSED}
}
