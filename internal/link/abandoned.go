package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
)

// unsettledLimit is how much of what callers have given up may be under way before no more is begun.
const unsettledLimit = 128

var errCrowded = errors.New("too many calls that were given up have not been answered")

// unsettled counts what has been given up by callers, and is not known to be over.
func (l *Link) unsettled(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(n)
}

// count is unsettled for a caller that has locked mu.
func (l *Link) count(n int) {
	l.underWay += n
	if l.underWay >= unsettledLimit && l.room == nil {
		l.room = make(chan struct{})
	}
}

// settled is the end of what unsettled has counted. Those that wait for room are told when half of it is over.
func (l *Link) settled(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.underWay -= n
	if l.room != nil && l.underWay <= unsettledLimit/2 {
		close(l.room)
		l.room = nil
	}
}

// refuse keeps why etcd does not let doubts be ended, for Admit, or nil if it does.
func (l *Link) refuse(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusal = err; l.room != nil {
		close(l.room) // a caller that waits looks again
		l.room = make(chan struct{})
	}
}

// Admit waits while 128 or more transactions, deletions and doubts that callers have given up are under way. It
// comes before a request that creates a key. Calls that give up and are made again, faster than
// etcd answers, would otherwise leave more and more for etcd to do. The error says that ctx or the session
// has ended, or why etcd refuses to end the doubts; nothing has been sent.
func (l *Link) Admit(ctx context.Context) error {
	for {
		l.mu.Lock()
		room, refusal := l.room, l.refusal
		l.mu.Unlock()
		switch {
		case room == nil:
			return nil
		case refusal != nil && l.ctx.Err() == nil:
			return request.Unsent(fmt.Errorf("%w: %w", errCrowded, refusal))
		}
		select {
		case <-room:
		case <-ctx.Done():
			return request.Unsent(fmt.Errorf("%w: %w", errCrowded, request.Ended(ctx, nil)))
		case <-l.ctx.Done():
			return request.Unsent(context.Cause(l.ctx))
		}
	}
}

// Discard removes key in the background, if its create revision is the given one, until that is
// confirmed. Then it calls gone, once, from the background goroutine; gone must not block. After the end of
// the session it is not called any more: the key goes with the lease. Discard does not block.
func (l *Link) Discard(key string, revision int64, gone func()) {
	l.DiscardAfter(0, key, revision, gone)
}

// DiscardAfter is Discard, not before d has passed. If the session ends earlier, the
// key stays for as long as the lease that it is bound to.
func (l *Link) DiscardAfter(d time.Duration, key string, revision int64, gone func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spawn(func(ctx context.Context) {
		if !request.Sleep(ctx, ctx, d) {
			return
		}
		for pause := request.FirstPause; ; pause = min(2*pause, request.LongPause) {
			l.unsettled(1)
			err := l.discard(ctx, key, revision)
			l.settled(1)
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				gone()
				return
			}
			l.warn("removing a key left behind failed, trying again", "key", key, "error", err)
			if !request.Sleep(ctx, ctx, request.Jitter(pause)) {
				return
			}
		}
	})
}

func (l *Link) discard(ctx context.Context, key string, revision int64) error {
	_, _, err := l.Commit(ctx, Transaction{
		If:     []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", revision)},
		Then:   []clientv3.Op{clientv3.OpDelete(key)},
		Likely: true,
	})
	return err
}

// warn logs one failure a second at most, whatever the number of keys.
func (l *Link) warn(message string, about ...any) {
	l.mu.Lock()
	due := time.Since(l.warned) >= logPause
	if due {
		l.warned = time.Now()
	}
	l.mu.Unlock()
	if due {
		l.logger.Warn(message, about...)
	}
}
