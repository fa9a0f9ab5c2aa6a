// A process of a fleet that locks one RWMutex in all ways, and tells a referee what it believes. It is built from this
// commit, with the tag upgrades, and from older ones, whose API it keeps to.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const (
	members = 3
	ttl     = 3 * time.Second
	// patience is far more than any wait lasts, unless it lasts for ever.
	patience = 40 * time.Second
)

func main() {
	ctx, stop := context.WithCancel(context.Background())
	go func() { // until the parent wants it to end, or is gone
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	seed, _ := strconv.ParseUint(os.Getenv("FLEET_SEED"), 10, 64)
	var running sync.WaitGroup
	for i := range uint64(members) {
		running.Go(func() { newMember(seed + i).run(ctx) })
	}
	running.Wait()
}

type member struct {
	random   *rand.Rand
	sessions *session.Keeper
	client   *clientv3.Client
	lock     *etcdlock.RWMutex
}

func newMember(seed uint64) *member {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Getenv("FLEET_ENDPOINT")}})
	if err != nil {
		panic(err)
	}
	sessions := session.Keep(client, session.WithTTL(ttl))
	return &member{rand.New(rand.NewPCG(seed, 1)), sessions, client, etcdlock.NewRWMutex(sessions, os.Getenv("FLEET_NAME"))}
}

func (m *member) run(ctx context.Context) {
	for ctx.Err() == nil {
		m.turn()
	}
	_ = m.sessions.Close(context.Background())
	_ = m.client.Close()
}

// turn takes the lock in some way, and gives it back.
func (m *member) turn() {
	mode, take := "s", m.lock.RLock
	switch m.random.IntN(6) {
	case 0:
		mode, take = "x", m.lock.Lock
	case 1:
		mode, take = "x", m.lock.TryLock
	case 2:
		take = m.lock.TryRLock
	case 3, 4:
		mode, take = m.upgradeable()
	}
	ctx, cancel := context.WithTimeout(context.Background(), m.upTo(3*time.Second))
	h, err := take(ctx)
	cancel()
	if err != nil {
		m.pause()
		return
	}
	m.hold(mode, h)
	switch {
	case mode == "x" && m.random.IntN(3) == 0:
		if h.Downgrade(context.Background()) == nil {
			m.hold("u", h)
			m.upgrade(h)
		}
	case mode == "u":
		m.upgrade(h)
	}
	_ = h.Unlock(context.Background())
}

// upgradeTo calls an upgrade, often with so little time that it fails.
func (m *member) upgradeTo(h *etcdlock.Hold, upgrade func(context.Context) error) {
	short := m.random.IntN(4) == 0
	limit := patience
	if short {
		limit = m.upTo(50 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	switch err := upgrade(ctx); {
	case err == nil:
		m.hold("a", h)
	case !short && errors.Is(err, context.DeadlineExceeded):
		tell("stuck", "u", h, true)
	default:
		m.hold("u", h)
	}
}

// hold tells what is believed, for a while.
func (m *member) hold(mode string, h *etcdlock.Hold) {
	tell("begin", mode, h, h.Err() == nil)
	m.pause()
	tell("end", mode, h, h.Err() == nil)
}

func (m *member) pause() { time.Sleep(m.upTo(8 * time.Millisecond)) }

func (m *member) upTo(d time.Duration) time.Duration {
	return time.Duration(m.random.Int64N(int64(d))) + 1
}

// tell returns when the referee has taken note.
func tell(what, mode string, h *etcdlock.Hold, held bool) {
	answer, err := http.Get(fmt.Sprintf("%s/?what=%s&mode=%s&token=%d&held=%t&process=%s",
		os.Getenv("FLEET_REFEREE"), what, mode, h.Token(), held, os.Getenv("FLEET_PROCESS")))
	if err != nil {
		os.Exit(1) // the parent is gone
	}
	_ = answer.Body.Close()
}
