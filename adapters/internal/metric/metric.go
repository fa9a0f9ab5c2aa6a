// Package metric has what the metrics of adapters/prometheus and adapters/otel have in common.
package metric

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/etcdlock"
)

// Buckets of histograms, in seconds.
var (
	WaitBuckets    = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	HoldBuckets    = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 5, 10, 30, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600}
	RenewalBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
)

// Names are those of locks that may be labels, so that there is a bounded number of them.
type Names map[string]bool

// Label returns name, or "other" if it is not among n.
func (n Names) Label(name string) string {
	if n[name] {
		return name
	}
	return "other"
}

// ErrorType sorts errors into a few kinds. The order is that of the table "Errors" in the documentation of etcdlock.
func ErrorType(err error) string {
	switch {
	case errors.Is(err, etcdlock.ErrBusy):
		return "busy"
	case errors.Is(err, etcdlock.ErrClosed):
		return "closed"
	case errors.Is(err, etcdlock.ErrLost):
		return "lost"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	var answer rpctypes.EtcdError
	if errors.As(err, &answer) {
		return "refused"
	}
	return "other"
}

// Key names the series of a kind of lock and a label. Failed is empty unless it is about calls that return an error.
type Key struct{ Kind, Label, Failed string }

// Table has values that are made once and then looked up without a lock. The zero value is empty.
type Table[V any] struct {
	now    atomic.Pointer[map[Key]V]
	adding sync.Mutex
}

// All returns what has been made.
func (t *Table[V]) All() map[Key]V {
	if now := t.now.Load(); now != nil {
		return *now
	}
	return nil
}

// Of returns the value of k, which is made by the first caller.
func (t *Table[V]) Of(k Key, create func(Key) V) V {
	if now := t.now.Load(); now != nil {
		if v, ok := (*now)[k]; ok {
			return v
		}
	}
	t.adding.Lock()
	defer t.adding.Unlock()
	next := map[Key]V{}
	if now := t.now.Load(); now != nil {
		next = maps.Clone(*now)
	}
	v, ok := next[k]
	if !ok {
		v = create(k)
		next[k] = v
		t.now.Store(&next)
	}
	return v
}
