package main

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
)

func concurrencyMutex() Peer {
	return concurrencyPeer("concurrency", "etcd's concurrency.Mutex", Mutex,
		func(s *concurrency.Session, name string) Locker { return concurrencyLocker{s, name} })
}

func concurrencyElection() Peer {
	return concurrencyPeer("concurrency Election", "etcd's concurrency.Election", Election,
		func(s *concurrency.Session, name string) Locker { return concurrencyCandidate{s, name} })
}

func recipesRW() Peer {
	p := concurrencyPeer("recipes RWMutex", "etcd's experimental recipes; its calls take no context", ReadWrite,
		func(s *concurrency.Session, name string) Locker { return recipeLocker{s, name} })
	p.SoloSession = false // each of its keys is unique
	return p
}

func concurrencyPeer(name, about string, kind Kind, locker func(*concurrency.Session, string) Locker) Peer {
	return Peer{
		Name: name, About: about, Kind: kind, Backend: Etcd, SoloSession: true,
		Connect: onEtcd(func(_ context.Context, c *clientv3.Client, ttl time.Duration) (Session, error) {
			// Its context would bound the session's life, not its creation.
			s, err := concurrency.NewSession(c, concurrency.WithTTL(int(ttl.Seconds())))
			return concurrencySession{s, locker}, err
		}),
	}
}

type concurrencySession struct {
	session *concurrency.Session
	locker  func(*concurrency.Session, string) Locker
}

func (s concurrencySession) Locker(name string) Locker {
	return s.locker(s.session, "concurrency/"+name)
}

func (s concurrencySession) Close(context.Context) { _ = s.session.Close() }

// concurrencyLocker makes a Mutex for each acquisition, because a Mutex is also the state of
// the one that it has been used for last.
type concurrencyLocker struct {
	session *concurrency.Session
	name    string
}

func (l concurrencyLocker) Lock(ctx context.Context) (Hold, error) {
	m := concurrency.NewMutex(l.session, l.name)
	return Hold{Unlock: m.Unlock, Lost: l.session.Done()}, m.Lock(ctx)
}

func (l concurrencyLocker) TryLock(ctx context.Context) (Hold, error) {
	m := concurrency.NewMutex(l.session, l.name)
	err := m.TryLock(ctx)
	if errors.Is(err, concurrency.ErrLocked) {
		err = errBusy
	}
	return Hold{Unlock: m.Unlock, Lost: l.session.Done()}, err
}

type concurrencyCandidate struct {
	session *concurrency.Session
	name    string
}

func (c concurrencyCandidate) Lock(ctx context.Context) (Hold, error) {
	e := concurrency.NewElection(c.session, c.name)
	return Hold{Unlock: e.Resign, Lost: c.session.Done()}, e.Campaign(ctx, "value")
}

func (concurrencyCandidate) TryLock(context.Context) (Hold, error) { return Hold{}, errNoTry }

type recipeLocker struct {
	session *concurrency.Session
	name    string
}

func (l recipeLocker) Lock(context.Context) (Hold, error) {
	m := recipe.NewRWMutex(l.session, l.name)
	err := m.Lock()
	return Hold{Unlock: func(context.Context) error { return m.Unlock() }, Lost: l.session.Done()}, err
}

func (l recipeLocker) RLock(context.Context) (Hold, error) {
	m := recipe.NewRWMutex(l.session, l.name)
	err := m.RLock()
	return Hold{Unlock: func(context.Context) error { return m.RUnlock() }, Lost: l.session.Done()}, err
}

func (recipeLocker) TryLock(context.Context) (Hold, error) { return Hold{}, errNoTry }
