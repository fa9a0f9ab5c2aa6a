package etcdlock

import (
	"fmt"
	"sync"
)

// Fence refuses writes of replaced holders in a store that is not etcd: it admits a token only if no
// higher one has been admitted before. The zero value is ready for use, and safe for concurrent use.
//
// It belongs into the one process that serves the store. Call Admit under the same lock as the write
// itself. A Fence forgets everything with its process. In a database, use a column instead,
//
//	UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2
//
// where a stale token updates no row. Over HTTP, send the token in a header, and answer 409 or 412 if
// Admit refuses.
//
// Only tokens of one lock can be compared, and only those of exclusive holds: of holders that share
// a lock, the earlier one still holds when the later one has a higher token.
type Fence struct {
	mu      sync.Mutex
	highest Token
}

// Admit returns nil if no token admitted before is higher than t. Otherwise the error wraps
// [ErrStale]: refuse the write.
func (f *Fence) Admit(t Token) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t < max(f.highest, 1) {
		return fmt.Errorf("%w: %d, and %d has been admitted", ErrStale, t, f.highest)
	}
	f.highest = t
	return nil
}
