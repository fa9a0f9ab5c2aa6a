package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// unsettledLimit is how much of what callers have given up may be under way before no more is begun.
const unsettledLimit = 128

var errCrowded = errors.New("too many calls that were given up have not been answered")

// unsettled counts what has been given up by callers, and is not known to be over.
func (s *Session) unsettled(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(n)
}

// count is unsettled for a caller that has locked mu.
func (s *Session) count(n int) {
	s.underWay += n
	if s.underWay >= unsettledLimit && s.room == nil {
		s.room = make(chan struct{})
	}
}

// settled is the end of what unsettled has counted. Those that wait for room are told when half of it is over.
func (s *Session) settled(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay -= n
	if s.room != nil && s.underWay <= unsettledLimit/2 {
		close(s.room)
		s.room = nil
	}
}

// Admit waits while 128 or more transactions, deletions and doubts that callers have given up are under way. It
// comes before a request that creates a key. Calls that give up and are made again, faster than
// etcd answers, would otherwise leave more and more for etcd to do. The error says that ctx or the session
// has ended; nothing has been sent.
func (s *Session) Admit(ctx context.Context) error {
	for {
		s.mu.Lock()
		room := s.room
		s.mu.Unlock()
		if room == nil {
			return nil
		}
		select {
		case <-room:
		case <-ctx.Done():
			return unsent{fmt.Errorf("%w: %w", errCrowded, ended(ctx, nil))}
		case <-s.ctx.Done():
			return unsent{context.Cause(s.ctx)}
		}
	}
}

// Discard removes key in the background, if its create revision is the given one, until that is
// confirmed. Then it calls gone, once, from the background goroutine; gone must not block. After the end of
// the session it is not called any more: the key goes with the lease. Discard does not block.
func (s *Session) Discard(key string, revision int64, gone func()) {
	s.DiscardAfter(0, key, revision, gone)
}

// DiscardAfter is Discard, not before d has passed. If the session ends earlier, the
// key stays for as long as the lease that it is bound to.
func (s *Session) DiscardAfter(d time.Duration, key string, revision int64, gone func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spawn(func(ctx context.Context) {
		if !sleep(ctx, ctx, d) {
			return
		}
		for pause := firstPause; ; pause = min(2*pause, longPause) {
			s.unsettled(1)
			err := s.discard(ctx, key, revision)
			s.settled(1)
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				gone()
				return
			}
			s.removalFailed(key, err)
			if !sleep(ctx, ctx, jitter(pause)) {
				return
			}
		}
	})
}

func (s *Session) discard(ctx context.Context, key string, revision int64) error {
	_, _, err := s.Commit(ctx, Transaction{
		If:     []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", revision)},
		Then:   []clientv3.Op{clientv3.OpDelete(key)},
		Likely: true,
	})
	return err
}

// removalFailed logs one failure a second at most, whatever the number of keys.
func (s *Session) removalFailed(key string, err error) {
	s.mu.Lock()
	due := time.Since(s.warned) >= logPause
	if due {
		s.warned = time.Now()
	}
	s.mu.Unlock()
	if due {
		s.logger.Warn("removing a key left behind failed, trying again", "key", key, "error", err)
	}
}
