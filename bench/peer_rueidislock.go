package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

func rueidislockPeer() Peer {
	return Peer{
		Name: "rueidislock", Kind: Mutex, Backend: Redis,
		About: "KeyMajority 1, as its README has it for one Redis, and else its defaults: validity 5 s, renewed every half of it; " +
			"does not poll: Redis tells all waiters when the key changes, and they race for it",
		Connect: func(_ context.Context, s Server, faulty bool) (Client, error) {
			address, p, err := maybeProxied(s.(*redisServer).address, faulty)
			return rueidisClient{address, p}, err
		},
	}
}

// rueidisClient only knows where to connect to: the connection and the validity of locks
// are a Locker's of rueidislock, so that is what a session is here.
type rueidisClient struct {
	address address
	proxy   *proxy // nil unless faulty
}

func (c rueidisClient) Session(_ context.Context, ttl time.Duration) (Session, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{
			InitAddress: []string{c.address.address},
			DialCtxFn: func(ctx context.Context, _ string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return d.DialContext(ctx, c.address.network, c.address.address)
			},
		},
		KeyMajority: 1,
		KeyValidity: ttl, // 0 is its default
	})
	if err != nil {
		return nil, fmt.Errorf("connect to redis: %w", err)
	}
	return rueidisSession{locker}, nil
}

func (c rueidisClient) Blackhole() { c.proxy.blackhole() }

func (c rueidisClient) Close() {
	if c.proxy != nil {
		c.proxy.close()
	}
}

type rueidisSession struct{ locker rueidislock.Locker }

func (s rueidisSession) Locker(name string) Locker { return rueidisLocker{s.locker, name} }

func (s rueidisSession) Close(context.Context) { s.locker.Close() }

type rueidisLocker struct {
	locker rueidislock.Locker
	name   string
}

func (l rueidisLocker) Lock(ctx context.Context) (Hold, error) {
	// The context of a hold is that of the call, and must outlive it.
	return rueidisHold(l.locker.WithContext(ctx, l.name))
}

func (l rueidisLocker) TryLock(ctx context.Context) (Hold, error) {
	h, err := rueidisHold(l.locker.TryWithContext(ctx, l.name))
	if errors.Is(err, rueidislock.ErrNotLocked) {
		err = errBusy
	}
	return h, err
}

func rueidisHold(held context.Context, cancel context.CancelFunc, err error) (Hold, error) {
	if err != nil {
		return Hold{}, err
	}
	return Hold{
		Unlock: func(context.Context) error { cancel(); return nil },
		Lost:   held.Done(),
	}, nil
}
