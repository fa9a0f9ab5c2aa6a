package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// zkTTL is the longest session that a server with default settings grants: 20 ticks.
const zkTTL = 40 * time.Second

func zookeeperPeer() Peer {
	return Peer{
		Name: "go-zookeeper", Kind: Mutex, Backend: ZooKeeper,
		About: "zk.Lock; offers no try and takes no context; a lost connection, after two thirds of the TTL, counts as notice of loss",
		Connect: func(_ context.Context, s Server, faulty bool) (Client, error) {
			address, p, err := maybeProxied(s.(*zookeeperServer).next(), faulty)
			return &zkClient{address: address, proxy: p}, err
		},
	}
}

// zkClient only knows where to connect to: a connection is a session.
type zkClient struct {
	address address
	proxy   *proxy // nil unless faulty

	mu    sync.Mutex
	conns []*zk.Conn
}

func (c *zkClient) Session(ctx context.Context, ttl time.Duration) (Session, error) {
	if ttl == 0 {
		ttl = zkTTL
	}
	s := zkSession{lost: make(chan struct{})}
	live := make(chan struct{})
	var liveOnce, lostOnce sync.Once
	conn, _, err := zk.Connect([]string{c.address.address}, ttl,
		zk.WithLogger(silence{}),
		zk.WithEventCallback(func(e zk.Event) {
			switch e.State {
			case zk.StateHasSession:
				liveOnce.Do(func() { close(live) })
			case zk.StateDisconnected, zk.StateExpired:
				// What comes before the session is no loss.
				select {
				case <-live:
					lostOnce.Do(func() { close(s.lost) })
				default:
				}
			}
		}))
	if err != nil {
		return nil, fmt.Errorf("connect to zookeeper: %w", err)
	}
	c.mu.Lock()
	c.conns = append(c.conns, conn)
	c.mu.Unlock()
	s.conn = conn
	select {
	case <-live:
		return s, nil
	case <-ctx.Done():
		conn.Close()
		return nil, fmt.Errorf("connect to zookeeper: %w", ctx.Err())
	}
}

func (c *zkClient) Blackhole() { c.proxy.blackhole() }

// Close also closes connections whose sessions have not been, to end calls that hang.
func (c *zkClient) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.proxy != nil {
		c.proxy.close()
	}
	for _, conn := range c.conns {
		conn.Close()
	}
}

type zkSession struct {
	conn *zk.Conn
	lost chan struct{}
}

func (s zkSession) Locker(name string) Locker { return zkLocker{s, "/bench/" + name} }

func (s zkSession) Close(context.Context) { s.conn.Close() }

// zkLocker makes a Lock for each acquisition, because a Lock is also its state.
type zkLocker struct {
	session zkSession
	path    string
}

func (l zkLocker) Lock(context.Context) (Hold, error) {
	lock := zk.NewLock(l.session.conn, l.path, zk.WorldACL(zk.PermAll))
	err := lock.Lock()
	return Hold{Unlock: func(context.Context) error { return lock.Unlock() }, Lost: l.session.lost}, err
}

func (zkLocker) TryLock(context.Context) (Hold, error) { return Hold{}, errNoTry }

type silence struct{}

func (silence) Printf(string, ...any) {}
