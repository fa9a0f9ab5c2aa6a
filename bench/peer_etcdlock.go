package main

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// etcdlockMutex is a Mutex with options: a variant takes one line in the list of peers.
func etcdlockMutex(name, about string, opts ...etcdlock.Option) Peer {
	return etcdlockPeer(name, about, Mutex, func(s *session.Session, key string) Locker {
		return etcdlockLocker{etcdlock.NewMutex(s, key, opts...)}
	})
}

func etcdlockRW() Peer {
	return etcdlockPeer("etcdlock RWMutex", "RWMutex", ReadWrite, func(s *session.Session, key string) Locker {
		m := etcdlock.NewRWMutex(s, key)
		return etcdlockRWLocker{etcdlockLocker{m}, m}
	})
}

func etcdlockElection() Peer {
	return etcdlockPeer("etcdlock Election", "Campaign and Resign", Election, func(s *session.Session, key string) Locker {
		return etcdlockCandidate{etcdlock.NewElection(s, key)}
	})
}

func etcdlockPeer(name, about string, kind Kind, locker func(*session.Session, string) Locker) Peer {
	return Peer{
		Name: name, About: about, Kind: kind, Backend: Etcd,
		Connect: onEtcd(func(ctx context.Context, c *clientv3.Client, ttl time.Duration) (Session, error) {
			s, err := session.New(ctx, c, session.WithTTL(ttl))
			return etcdlockSession{s, locker}, err
		}),
	}
}

type etcdlockSession struct {
	session *session.Session
	locker  func(*session.Session, string) Locker
}

func (s etcdlockSession) Locker(name string) Locker { return s.locker(s.session, name) }

func (s etcdlockSession) Close(ctx context.Context) { _ = s.session.Close(ctx) }

type etcdlockLocker struct{ locker etcdlock.Locker }

func (l etcdlockLocker) Lock(ctx context.Context) (Hold, error) {
	return etcdlockHold(l.locker.Lock(ctx))
}

func (l etcdlockLocker) TryLock(ctx context.Context) (Hold, error) {
	return etcdlockHold(l.locker.TryLock(ctx))
}

type etcdlockRWLocker struct {
	etcdlockLocker
	rw *etcdlock.RWMutex
}

func (l etcdlockRWLocker) RLock(ctx context.Context) (Hold, error) {
	return etcdlockHold(l.rw.RLock(ctx))
}

func etcdlockHold(h *etcdlock.Hold, err error) (Hold, error) {
	switch {
	case errors.Is(err, etcdlock.ErrBusy):
		return Hold{}, errBusy
	case err != nil:
		return Hold{}, err
	}
	return Hold{Unlock: h.Unlock, Lost: h.Done()}, nil
}

type etcdlockCandidate struct{ election *etcdlock.Election }

func (c etcdlockCandidate) Lock(ctx context.Context) (Hold, error) {
	term, err := c.election.Campaign(ctx, "value")
	if err != nil {
		return Hold{}, err
	}
	return Hold{Unlock: term.Resign, Lost: term.Done()}, nil
}

func (etcdlockCandidate) TryLock(context.Context) (Hold, error) { return Hold{}, errNoTry }
