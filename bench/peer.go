package main

import (
	"context"
	"errors"
	"time"

	"github.com/etcdlock/locks/etcdlock"
)

// Kind says what a peer's lock is for, and so which workloads it takes part in.
type Kind int

// The kinds of peers.
const (
	Mutex     Kind = iota // one at a time
	ReadWrite             // many readers or one writer
	Election              // held until the owner dies or resigns
	Floor                 // no lock: what a hand-over cannot be faster than
)

// Backend is the kind of server that a peer needs.
type Backend string

// The backends.
const (
	Etcd      Backend = "etcd"
	Redis     Backend = "redis"
	ZooKeeper Backend = "zookeeper"
	Memory    Backend = "memory"
)

// Peer is one library, or one way to use it.
type Peer struct {
	Name    string
	About   string // settings, for the report
	Kind    Kind
	Backend Backend

	// SoloSession says that two goroutines that lock the same name on one session both get
	// it, so that each needs a session of its own.
	SoloSession bool

	// Connect makes a client of the server. A faulty one can be cut off.
	Connect func(ctx context.Context, s Server, faulty bool) (Client, error)
}

// Client stands for one process: a connection, or a pool of them.
type Client interface {
	// Session makes what holds locks and is kept alive: a lease, a ZooKeeper session. For a
	// peer that has none it is nothing. A ttl of 0 is the peer's own choice for throughput.
	Session(ctx context.Context, ttl time.Duration) (Session, error)
	// Blackhole makes all of the client's packets vanish from now on.
	Blackhole()
	// Close must also end calls that are under way, since some peers' know no context.
	Close()
}

// Session is where lockers come from.
type Session interface {
	// Locker is what goroutines of one process that share a lock would share.
	Locker(name string) Locker
	Close(ctx context.Context)
}

// Locker locks one name.
type Locker interface {
	Lock(ctx context.Context) (Hold, error)
	// TryLock returns errBusy if somebody else has the lock, errNoTry if the peer cannot try.
	TryLock(ctx context.Context) (Hold, error)
}

// ReadLocker is a Locker of kind ReadWrite.
type ReadLocker interface {
	RLock(ctx context.Context) (Hold, error)
}

// Hold is one ownership.
type Hold struct {
	Unlock func(ctx context.Context) error
	Lost   <-chan struct{} // nil if the peer does not tell
}

var (
	errBusy  = errors.New("busy")
	errNoTry = errors.New("offers no try")
)

// peers are all that can be compared, the reference first.
func peers() []Peer {
	return []Peer{
		etcdlockMutex("etcdlock", "Mutex"),
		etcdlockMutex("etcdlock local", "Mutex, WithLocalHandover: 20 ms", etcdlock.WithLocalHandover(20*time.Millisecond, 1_000_000)),
		etcdlockMutex("etcdlock kept", "Mutex, WithRetention: 1 s", etcdlock.WithRetention(time.Second)),
		etcdlockRW(),
		etcdlockElection(),
		concurrencyMutex(),
		concurrencyElection(),
		recipesRW(),
		redsyncPeer(),
		redislockPeer(),
		rueidislockPeer(),
		zookeeperPeer(),
		clientgoPeer(),
		floorPeer(),
	}
}

// reference is the peer that ratios refer to.
const reference = "etcdlock"
