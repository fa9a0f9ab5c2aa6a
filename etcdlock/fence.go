package etcdlock

import (
	"fmt"
	"sync"
)

// Fence keeps writes of replaced holders out of a store that is not etcd: it admits a
// token only if no higher one has been admitted before. The zero value is ready, and safe
// for concurrent use.
//
// It lives where the writes take effect: in the one process that serves the store, asked
// under the same lock or transaction as the write itself, and as durable as the store is:
// after a restart it has forgotten what it saw. A store that is a database does better
// with a column,
//
//	UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2
//
// where no row updated means that $2, the token, was stale. Over HTTP, send the token in a
// header and let the server answer 409 or 412 when Admit refuses.
//
// Tokens of one lock can be compared with each other, not with those of another lock. The
// holders of a shared lock do not fence each other: the later one's token is higher, but
// the earlier one still holds, so use tokens of exclusive holds only.
type Fence struct {
	mu      sync.Mutex
	highest Token
}

// Admit returns nil if t is a token at least as high as every one admitted before, and an
// error that wraps [ErrStale] otherwise: then refuse the write.
func (f *Fence) Admit(t Token) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t < max(f.highest, 1) {
		return fmt.Errorf("%w: %d, and %d has been here", ErrStale, t, f.highest)
	}
	f.highest = t
	return nil
}
