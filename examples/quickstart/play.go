package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

// kill is what happened half way.
type kill struct {
	victim    turn
	revision  int64 // of etcd, when it was announced that the victim holds
	at        time.Time
	successor turn
	after     time.Duration // from the kill until it held the lock; 0: nobody did
}

// play runs the workers and follows them, in the order that etcd gives to what they do.
// Only the goroutine in run touches it.
type play struct {
	cfg     config
	ledger  ledger
	account *account

	crew   map[string]*child
	news   chan news
	killed bool

	told map[etcdlock.Token]int64 // confirmed to a worker: what it wrote
	kill kill
}

func newPlay(cfg config, l ledger, a *account) *play {
	return &play{
		cfg: cfg, ledger: l, account: a,
		crew: make(map[string]*child), news: make(chan news), told: make(map[etcdlock.Token]int64),
	}
}

// run returns when all workers have gone, and everything that they did from revision
// since on has been shown.
func (p *play) run(ctx context.Context, since int64) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	watch := p.ledger.watch(ctx, since)
	if err := p.hireAll(ctx); err != nil {
		stop(err)
	}
	present, ended := len(p.crew), false
	for present > 0 || !ended {
		if present == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		select {
		case n := <-p.news: // never left unread: the workers' goroutines depend on it
			if err := p.hear(n); err != nil {
				stop(err)
			}
			if n.exited {
				present--
			}
			if present == 0 && ctx.Err() == nil {
				if err := p.ledger.seal(ctx); err != nil {
					stop(err)
				}
			}
		case w, open := <-watch:
			if !open || w.Err() != nil {
				stop(errors.Join(errors.New("the watch ended"), w.Err())) // no news if ctx is over
				watch = nil
				break
			}
			for _, change := range w.Events {
				sealed, err := p.show(change)
				if err != nil {
					stop(err)
				}
				ended = ended || sealed
			}
		}
		if p.account.err != nil {
			stop(p.account.err)
		}
	}
	return context.Cause(ctx)
}

func (p *play) hireAll(ctx context.Context) error {
	for i := range p.cfg.workers {
		j := job{
			Name:      fmt.Sprintf("worker-%d", i+1),
			Endpoints: p.cfg.endpoints,
			Prefix:    p.ledger.prefix,
			TTL:       p.cfg.ttl,
			Rounds:    p.cfg.rounds,
			PauseAt:   p.cfg.rounds / 2,
		}
		c, err := hire(ctx, j, p.news)
		if err != nil {
			return fmt.Errorf("starting %s: %w", j.Name, err)
		}
		p.crew[j.Name] = c
	}
	return nil
}

// hear takes note of what a worker says itself.
func (p *play) hear(n news) error {
	switch {
	case n.exited && n.err != nil && !n.from.killed:
		return fmt.Errorf("%s ended: %w", n.from.name, n.err)
	case n.exited && n.err == nil && n.from.killed:
		return errors.New(n.from.name + " ended before it was killed")
	case n.Trouble != "":
		p.account.note("%s %s", n.from.name, n.Trouble)
	case n.Token != 0:
		p.told[n.Token] = n.Wrote
	}
	return nil
}

// show takes note of what has changed in etcd, and reports whether that was the seal.
func (p *play) show(change *clientv3.Event) (sealed bool, err error) {
	key := string(change.Kv.Key)
	isLog := strings.HasPrefix(key, p.ledger.log())
	if key == p.ledger.end() {
		return true, nil
	}
	if !isLog && key != p.ledger.holder() {
		return false, nil
	}
	t, err := parseTurn(change.Kv.Value)
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", key, err)
	}
	if isLog {
		p.account.wrote(t)
		return false, nil
	}
	return false, p.holds(t, change.Kv.ModRevision)
}

// holds is called when a worker has announced that it has the lock. The first to do so
// half way is killed. It waits for that with the lock in its hand, so this depends on
// nobody's speed.
func (p *play) holds(t turn, revision int64) error {
	if p.killed && p.kill.after == 0 {
		p.kill.successor, p.kill.after = t, time.Since(p.kill.at)
		p.account.takenOver(p.kill)
	}
	p.account.holds(t)
	if p.killed || t.Read != p.cfg.rounds/2 {
		return nil
	}
	victim := p.crew[t.Worker]
	for _, c := range p.crew {
		if c != victim {
			_ = c.tell(struct{}{}) // one that has gone is reported as such
		}
	}
	p.killed = true
	p.kill = kill{victim: t, revision: revision, at: time.Now()}
	if err := victim.kill(); err != nil {
		return err
	}
	p.account.killed(t)
	return nil
}
