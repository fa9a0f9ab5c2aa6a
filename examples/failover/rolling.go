package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/session"
)

// everyMemberDiesOnce returns Bob's hold.
func everyMemberDiesOnce(ctx context.Context, e *stage.Etcd, alice, bob *party) (*etcdlock.Hold, error) {
	h, err := alice.lock.Lock(ctx)
	if err != nil {
		return nil, err
	}
	e.Say("alice  holds the lock with token %d", h.Token())
	bobs := bob.wait(ctx)
	if err := bob.standsInLine(ctx, bobs); err != nil {
		return nil, err
	}
	e.Say("bob    waits in line")

	s, err := alice.sessions.Session(ctx)
	if err != nil {
		return nil, err
	}
	renewals, stopLooking := watchRenewals(e.Cluster, s.Lease())
	defer stopLooking()
	var victim *embedtest.Member
	for alive := e.Cluster.Members(); len(alive) > 0; alive = without(alive, victim) {
		if victim != nil {
			if err := victim.Restart(); err != nil {
				return nil, err
			}
		}
		served, err := renew(ctx, s, renewals)
		if err != nil {
			return nil, err
		}
		leader, err := e.Cluster.WaitLeader(ctx)
		if err != nil {
			return nil, err
		}
		victim = choose(alive, served, leader)
		victim.Kill()
		e.Say("KILL   %s%s", victim.Name(), roles(victim, served, leader))
		// At once, which is when it is hardest. Left alone, the session renews every third of its TTL.
		if served, err = renew(ctx, s, renewals); err != nil {
			return nil, fmt.Errorf("alice has lost the lock because of one member: %w", err)
		}
		e.Say("alice  renews through %s, and may trust the lock for %.2f s", served.Name(), time.Until(h.Deadline()).Seconds())
		if err := alice.note(ctx, h, e.Prefix+"note", "alice, without "+victim.Name()); err != nil {
			return nil, err
		}
		if err := stillWaiting("bob", bobs); err != nil {
			return nil, err
		}
		e.Say("       can write; bob is still in line")
	}
	if err := h.Unlock(ctx); err != nil {
		return nil, err
	}
	e.Say("alice  unlocks, with %s still down", victim.Name())
	next, err := takenOver(ctx, e, h, bob, bobs)
	if err != nil {
		return nil, err
	}
	return next, victim.Restart()
}

// renew renews the lease now, and returns the member that has done so.
func renew(ctx context.Context, s *session.Session, seen renewals) (*embedtest.Member, error) {
	if err := s.Renew(ctx); err != nil {
		return nil, err
	}
	last, err := seen.last(ctx)
	return last.by, err
}

// choose takes the member that hurts most.
func choose(among []*embedtest.Member, served, leads *embedtest.Member) *embedtest.Member {
	for _, m := range []*embedtest.Member{served, leads} {
		if slices.Contains(among, m) {
			return m
		}
	}
	return among[0]
}

func roles(m, served, leads *embedtest.Member) (text string) {
	if m == served {
		text += ", to which alice's renewals go"
	}
	if m == leads {
		text += ", the leader"
	}
	return text
}

func without(members []*embedtest.Member, m *embedtest.Member) []*embedtest.Member {
	return slices.DeleteFunc(slices.Clone(members), func(other *embedtest.Member) bool { return other == m })
}
