package etcdlock

import (
	"fmt"
	"sync"
)

// Fence refuses writes of replaced holders in a store that is not etcd: it admits a token only if no
// higher one has been admitted before. The zero value is ready for use, and safe for concurrent use.
//
// Use it in the one process that serves the store. Write within Do, or call Admit and write under one lock. The
// tokens of a Fence are lost with its process. In a database, use a column instead,
//
//	UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2
//
// where a stale token updates no row, or package sqlfence, which also has a handler for HTTP.
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
	return f.Do(t, func() error { return nil })
}

// Do calls write if t is admitted, and returns its error. Meanwhile no other token is admitted, so a write of an
// earlier holder is over before one of a later holder begins. If a higher token was admitted before, write is not
// called, and the error wraps [ErrStale]. write must not use the Fence.
func (f *Fence) Do(t Token, write func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t < max(f.highest, 1) {
		return fmt.Errorf("%w: %d, and %d has been admitted", ErrStale, t, f.highest)
	}
	f.highest = t
	return write()
}
