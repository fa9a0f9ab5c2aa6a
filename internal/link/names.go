package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
)

// abandonedLimit is how many requests, deletions and doubts that callers have given up may be unfinished when another
// call begins.
const abandonedLimit = 128

var errCrowded = errors.New("too many calls that were given up have not been answered")

// Claim reserves the lowest number that is free under prefix in this session. A key that is built from the number
// and the lease is no other goroutine's at the same time. A name is used again as soon as it
// is free: deleted keys stay in etcd's index until a compaction, so a fresh name
// for each use would make every range over the prefix slower and slower.
//
// Give the number back with Free, once it is certain that the key is gone and
// that no request in flight could create it. No request is made.
func (l *Link) Claim(prefix string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.use(1)
	used := l.slots[prefix]
	for n, taken := range used {
		if !taken {
			used[n] = true
			return n
		}
	}
	l.slots[prefix] = append(used, true)
	return len(used)
}

// Free gives back a number that Claim returned for prefix.
func (l *Link) Free(prefix string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	used := l.slots[prefix]
	if n >= len(used) || !used[n] {
		panic("session: a number is given back that was not taken")
	}
	l.use(-1)
	used[n] = false
	for len(used) > 0 && !used[len(used)-1] {
		used = used[:len(used)-1]
	}
	if len(used) == 0 {
		// The table must not grow with the number of prefixes ever used.
		delete(l.slots, prefix)
		return
	}
	l.slots[prefix] = used
}

// Withhold leaves a number that Claim returned taken until the session ends, although no caller uses it.
func (l *Link) Withhold() { l.setAside(1) }

// Admit waits while 128 or more requests, deletions and doubts that callers have given up are unfinished. It
// comes before a request that creates a key. Calls that give up and are made again, faster than
// etcd answers, would otherwise leave more and more for etcd to do. The error says that ctx or the session
// has ended, or why etcd refuses to end the doubts, if there are 2048; nothing has been sent.
func (l *Link) Admit(ctx context.Context) error {
	for {
		if l.lasting.Load() >= fullLimit {
			return request.Unsent(fmt.Errorf("%w; a Keeper replaces such a session", l.Spending()))
		}
		l.mu.Lock()
		room := l.room
		l.mu.Unlock()
		if room == nil {
			return nil
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

// count adds n to what callers have given up and is unfinished. Callers of Admit go on when it falls to half of the
// limit. The caller has locked mu.
func (l *Link) count(n int) {
	l.abandoned += n
	switch {
	case l.room == nil && l.abandoned >= abandonedLimit:
		l.room = make(chan struct{})
	case l.room != nil && l.abandoned <= abandonedLimit/2:
		close(l.room)
		l.room = nil
	}
}

// countAbandoned is count for a caller that has not locked mu.
func (l *Link) countAbandoned(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(n)
}

// Discard removes key in the background, if its create revision is the given one, until that is
// confirmed. Then it calls gone, once, from the background goroutine; gone must not block. After the end of
// the session gone is not called any more: the key goes with the lease that it is bound to. Discard does not block.
func (l *Link) Discard(key string, revision int64, gone func()) {
	l.DiscardAfter(0, key, revision, gone)
}

// DiscardAfter is Discard, not before d has passed. If the session ends earlier, the
// key stays for as long as the lease that it is bound to.
func (l *Link) DiscardAfter(d time.Duration, key string, revision int64, gone func()) {
	l.Start(func(ctx context.Context) {
		if d > 0 {
			l.setAside(1)
			if !request.Sleep(ctx, ctx, d) {
				return
			}
			l.setAside(-1)
		}
		for pause := request.FirstPause; ; pause = min(2*pause, request.LongPause) {
			l.countAbandoned(1)
			_, _, err := l.Commit(ctx, Transaction{
				If:   []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", revision)},
				Then: []clientv3.Op{clientv3.OpDelete(key)},
			})
			l.countAbandoned(-1)
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

// warn logs one warning a second at most, whatever the number of keys.
func (l *Link) warn(message string, attributes ...any) {
	l.mu.Lock()
	due := time.Since(l.warned) >= logPause
	if due {
		l.warned = time.Now()
	}
	l.mu.Unlock()
	if due {
		l.logger.Warn(message, attributes...)
	}
}

// Retire says that the session gets no new callers. A ticket that is only kept for later ones is given up.
func (l *Link) Retire() { l.retire() }

// Retired returns a context that ends with Retire, or with the session.
func (l *Link) Retired() context.Context { return l.retired }

// AwaitUnused waits until the session ends, or no caller uses a key: no ticket waits, owns, or is being removed. Keys
// in doubt are not used, since they go with the lease for certain. Nor are those that DiscardAfter keeps for a time, nor
// names that are withheld. It returns ctx's error.
func (l *Link) AwaitUnused(ctx context.Context) error {
	for {
		l.mu.Lock()
		if l.used > 0 && l.unused == nil {
			l.unused = make(chan struct{})
		}
		used, unused := l.used, l.unused
		l.mu.Unlock()
		if used <= 0 {
			return nil
		}
		select {
		case <-unused:
		case <-l.ctx.Done():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// use adds n to the numbers in use. The caller has locked mu.
func (l *Link) use(n int) {
	l.used += n
	if l.used <= 0 && l.unused != nil {
		close(l.unused)
		l.unused = nil
	}
}

// setAside says that n claimed numbers are not used, or are used again.
func (l *Link) setAside(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.use(-n)
}
