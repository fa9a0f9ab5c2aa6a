package proof_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

// use holds the lock for a while, looking at it all the time, and writes under it.
func (u *user) use(ctx context.Context, t *take, b *belief, h *etcdlock.Hold) {
	until := time.Now().Add(time.Duration(max(0, u.random.IntN(40)-20)) * time.Millisecond)
	if u.random.IntN(30) == 0 { // long enough to lose it
		until = until.Add(ttl + time.Duration(u.random.Int64N(int64(ttl))))
	}
	if t.weight == exclusive && len(t.names) == 1 {
		u.write(ctx, t, b, h)
		if u.random.IntN(3) == 0 && !t.entered && slices.Contains(plainNames, t.names[0]) {
			u.downgrade(ctx, t, b, h)
		}
	}
	if b.step.weight == upgradeable {
		u.upgrade(ctx, t, b, h)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for time.Now().Before(until) && b.look() {
		<-tick.C
	}
	if !b.look() {
		b.lost()
		_ = h.Unlock(context.Background()) // it is over already
		return
	}
	if t.term != nil && u.random.IntN(3) > 0 && u.transfer(ctx, t, b) {
		return
	}
	u.unlock(ctx, t, b, h)
}

// steady holds one lock of its own all the time, and has to hear of each loss.
func (w *worker) steady(ctx context.Context) {
	t := &take{step: step{names: []string{fmt.Sprint("steady ", w.number)}}}
	for ctx.Err() == nil {
		l := w.life.Load()
		called := w.moment()
		h, err := etcdlock.NewMutex(l.sessions, t.names[0], l.counted).Lock(ctx)
		if err != nil {
			wait(ctx, 20*time.Millisecond)
			continue
		}
		b := w.history.acquired(w.number*100+99, t.step, h, leaseOf(h), called.at)
		noted(w.history, &w.history.grants, grant{fmt.Sprintf("client %d, %v", w.number, t.step), b.tickets, called, w.moment(), ""})
		for b.look() && !w.calm(b) {
			wait(context.Background(), 5*time.Millisecond)
		}
		if !b.look() {
			b.lost()
			_ = h.Unlock(context.Background())
			continue
		}
		b.released(h.Unlock(context.Background()) == nil)
	}
}

// calm reports whether all trouble is over for so long that what is still believed in has to be there.
func (w *worker) calm(b *belief) bool {
	over := w.calls.over.Load()
	if over == 0 {
		return false
	}
	if w.witness == nil || w.witness.there(b.tickets) {
		return true
	}
	if w.history.now() > over+int64(toldWithin) {
		w.history.fail(fmt.Sprintf("client %d still believes in %v", w.number, b.tickets))
		return true
	}
	return false
}

// briefly is a context for what is done with a lock, which may be too short for it, or over.
func (u *user) briefly(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), time.Duration(u.random.IntN(2000))*time.Millisecond)
}

func (u *user) unlock(ctx context.Context, t *take, b *belief, h *etcdlock.Hold) {
	bounded, cancel := u.briefly(ctx)
	defer cancel()
	what := fmt.Sprintf("client %d, unlock of %v", u.number, t.step)
	var err error
	began, done := u.during(bounded, t.life, what, func() { err = h.Unlock(bounded) })
	b.released(err == nil)
	if err == nil && t.confirmed {
		noted(u.history, &u.history.releases, release{what, b.tickets, began, done})
	}
}

// transfer passes a term on to a waiting candidate, and reports whether it is over.
func (u *user) transfer(ctx context.Context, t *take, b *belief) bool {
	bounded, cancel := u.briefly(ctx)
	defer cancel()
	waiting, err := t.life.elections[0].Candidates(bounded)
	if err != nil || len(waiting) == 0 || !b.look() {
		return false
	}
	to := waiting[u.random.IntN(len(waiting))].Value
	b.passes(true)
	_, done := u.during(bounded, t.life, fmt.Sprintf("client %d, transfer to %s", u.number, to), func() {
		err = t.term.Transfer(bounded, to)
	})
	noted(u.history, &u.history.transfers, transfer{b.tickets[0], to, done, err == nil})
	switch {
	case err == nil:
		b.released(true)
	case t.term.Err() != nil:
		b.released(false)
	default:
		b.passes(false)
		return false
	}
	_ = t.term.Resign(bounded) // it is over already
	return true
}

// write puts the token into a store that only the lock's owner can write to.
func (u *user) write(ctx context.Context, t *take, b *belief, h *etcdlock.Hold) {
	bounded, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var err error
	began, _ := u.during(bounded, t.life, fmt.Sprintf("client %d, write under %v", u.number, t.step), func() {
		_, err = h.Txn(bounded).Then(clientv3.OpPut(fencedData+t.names[0], fmt.Sprint(h.Token()))).Commit()
	})
	b.wrote(began.at, err == nil)
}

// upgrade makes a reader a writer, writes, and goes back perhaps.
func (u *user) upgrade(ctx context.Context, t *take, b *belief, h *etcdlock.Hold) {
	for range u.random.IntN(3) {
		bounded, cancel := u.briefly(ctx)
		var err error
		what := fmt.Sprintf("client %d, upgrade of %v", u.number, t.step)
		began, done := u.during(bounded, t.life, what, func() { err = h.Upgrade(bounded) })
		cancel()
		if err != nil {
			u.history.refused(err)
			continue
		}
		noted(u.history, &u.history.upgrades, release{what, b.tickets, began, done})
		b.upgraded(began.at)
		u.write(ctx, t, b, h)
		if u.random.IntN(2) == 0 {
			return
		}
		u.downgrade(ctx, t, b, h)
	}
}

// downgrade lets readers in. If its answer is lost, either may be true, so it is tried again.
func (u *user) downgrade(ctx context.Context, t *take, b *belief, h *etcdlock.Hold) {
	called := b.loosening()
	for b.look() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		var err error
		u.during(bounded, t.life, fmt.Sprintf("client %d, downgrade of %v", u.number, t.step), func() { err = h.Downgrade(bounded) })
		cancel()
		if err == nil || errors.Is(err, etcdlock.ErrLost) {
			break
		}
	}
	if h.Shared() {
		b.downgraded(called)
	}
}
