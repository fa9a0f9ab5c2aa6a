package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redisTTL is redsync's default, and ours for redislock, which has none.
const redisTTL = 8 * time.Second

func redsyncPeer() Peer {
	return Peer{
		Name: "redsync", Kind: Mutex, Backend: Redis,
		About: "one Redis; polls every 50 to 250 ms, expiry 8 s (its defaults); called again when its 32 tries are used up; does not renew",
		Connect: onRedis(func(c *redis.Client, ttl time.Duration, name string) Locker {
			return redsyncLocker{redsync.New(goredis.NewPool(c)), name, ttl}
		}),
	}
}

func redislockPeer() Peer {
	return Peer{
		Name: "redislock", Kind: Mutex, Backend: Redis,
		About: "polls every 100 ms, as in its example (its default is not to wait), TTL 8 s; does not renew",
		Connect: onRedis(func(c *redis.Client, ttl time.Duration, name string) Locker {
			return redislockLocker{redislock.New(c), name, ttl}
		}),
	}
}

// redisClient is go-redis with its default settings.
type redisClient struct {
	*redis.Client
	proxy  *proxy // nil unless faulty
	locker func(c *redis.Client, ttl time.Duration, name string) Locker
}

func onRedis(locker func(*redis.Client, time.Duration, string) Locker) func(context.Context, Server, bool) (Client, error) {
	return func(_ context.Context, s Server, faulty bool) (Client, error) {
		address, p, err := maybeProxied(s.(*redisServer).address, faulty)
		if err != nil {
			return nil, err
		}
		c := redis.NewClient(&redis.Options{Network: address.network, Addr: address.address})
		return redisClient{c, p, locker}, nil
	}
}

// Session has nothing to keep alive.
func (c redisClient) Session(_ context.Context, ttl time.Duration) (Session, error) {
	if ttl == 0 {
		ttl = redisTTL
	}
	return redisSession{c, ttl}, nil
}

func (c redisClient) Blackhole() { c.proxy.blackhole() }

func (c redisClient) Close() {
	_ = c.Client.Close()
	if c.proxy != nil {
		c.proxy.close()
	}
}

type redisSession struct {
	client redisClient
	ttl    time.Duration
}

func (s redisSession) Locker(name string) Locker {
	return s.client.locker(s.client.Client, s.ttl, name)
}

func (redisSession) Close(context.Context) {}

type redsyncLocker struct {
	redsync *redsync.Redsync
	name    string
	ttl     time.Duration
}

func (l redsyncLocker) Lock(ctx context.Context) (Hold, error) {
	m := l.redsync.NewMutex(l.name, redsync.WithExpiry(l.ttl))
	for {
		err := m.LockContext(ctx)
		if err == nil {
			return redsyncHold(m), nil
		}
		if ctx.Err() != nil || !redsyncTaken(err) {
			return Hold{}, err
		}
	}
}

func (l redsyncLocker) TryLock(ctx context.Context) (Hold, error) {
	m := l.redsync.NewMutex(l.name, redsync.WithExpiry(l.ttl))
	err := m.TryLockContext(ctx)
	if redsyncTaken(err) {
		err = errBusy
	}
	return redsyncHold(m), err
}

func redsyncTaken(err error) bool {
	var taken *redsync.ErrTaken
	return errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed)
}

func redsyncHold(m *redsync.Mutex) Hold {
	return Hold{Unlock: func(ctx context.Context) error {
		_, err := m.UnlockContext(ctx)
		return err
	}}
}

type redislockLocker struct {
	client *redislock.Client
	name   string
	ttl    time.Duration
}

func (l redislockLocker) Lock(ctx context.Context) (Hold, error) {
	return redislockHold(l.client.Obtain(ctx, l.name, l.ttl, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond),
	}))
}

func (l redislockLocker) TryLock(ctx context.Context) (Hold, error) {
	return redislockHold(l.client.Obtain(ctx, l.name, l.ttl, nil))
}

func redislockHold(lock *redislock.Lock, err error) (Hold, error) {
	if errors.Is(err, redislock.ErrNotObtained) {
		return Hold{}, errBusy
	}
	return Hold{Unlock: lock.Release}, err
}
