package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
)

// tryTime is how long Alice tries to get a lock that nobody can have.
const tryTime = 300 * time.Millisecond

// aMajorityDies returns Bob's hold, which is lost, and the members that are dead.
func aMajorityDies(ctx context.Context, e *stage.Etcd, alice, bob *party, h *etcdlock.Hold) (*etcdlock.Hold, []*embedtest.Member, error) {
	s, err := bob.sessions.Session(ctx)
	if err != nil {
		return nil, nil, err
	}
	leader, err := e.Cluster.WaitLeader(ctx)
	if err != nil {
		return nil, nil, err
	}
	survivor := without(e.Cluster.Members(), leader)[0]
	dead := without(e.Cluster.Members(), survivor)
	renewals, stopLooking := watchRenewals(e.Cluster, s.Lease())
	defer stopLooking()
	if err := s.Renew(ctx); err != nil {
		return nil, nil, err
	}
	for _, m := range dead {
		m.Kill()
	}
	e.Say("KILL   %s and %s; only %s is left", dead[0].Name(), dead[1].Name(), survivor.Name())
	last, err := renewals.last(ctx) // the last one that a majority can have heard of
	if err != nil {
		return nil, nil, err
	}
	select {
	case <-h.Done():
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	e.Say("bob    h.Done() closes: %v", h.Err())
	// The lease cannot run out before its TTL has passed since a member got the renewal.
	spare := last.at.Add(s.TTL()).Sub(h.Deadline())
	if spare <= 0 || !errors.Is(h.Err(), etcdlock.ErrLost) {
		return nil, nil, errors.Join(fmt.Errorf("bob believed in the lock for %v too long", -spare), h.Err())
	}
	e.Say("       his deadline, %.2f s before the lease could have run out", spare.Seconds())

	bounded, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	if _, err := alice.lock.TryLock(bounded); !errors.Is(err, context.DeadlineExceeded) {
		return nil, nil, errors.Join(errors.New("alice did not run out of time for a lock that nobody can have"), err)
	}
	e.Say("alice  TryLock, given %v: %v", tryTime, context.DeadlineExceeded)
	return h, dead, nil
}

// membersComeBack restarts the members, and lets both parties hold the lock once more.
func membersComeBack(ctx context.Context, e *stage.Etcd, alice, bob *party, lost *etcdlock.Hold, dead []*embedtest.Member) error {
	alices := alice.wait(ctx)
	e.Say("alice  waits with Lock, while there is nobody to hear her")
	if err := stillWaiting("alice", alices); err != nil {
		return err
	}
	for _, m := range dead {
		if err := m.Restart(); err != nil {
			return err
		}
		e.Say("START  %s", m.Name())
	}
	h, err := takenOver(ctx, e, lost, alice, alices)
	if err != nil {
		return err
	}
	if err := bob.note(ctx, lost, e.Prefix+"note", "bob"); !errors.Is(err, etcdlock.ErrLost) {
		return errors.Join(errors.New("bob's write was not refused for the loss"), err)
	}
	e.Say("bob    tries to write with his old hold: refused")
	bobs := bob.wait(ctx)
	if err := bob.standsInLine(ctx, bobs); err != nil {
		return err
	}
	e.Say("bob    waits in line, with a new session")
	if err := h.Unlock(ctx); err != nil {
		return err
	}
	e.Say("alice  unlocks")
	if h, err = takenOver(ctx, e, h, bob, bobs); err != nil {
		return err
	}
	return h.Unlock(ctx)
}
