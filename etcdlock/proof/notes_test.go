package proof_test

import (
	"context"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdlock/locks/etcdlock"
)

// noted takes down what a client has been told.
func noted[T any](h *history, all *[]T, one T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*all = append(*all, one)
}

// expected are the errors that a Lock may return in a storm.
var expected = map[string]error{
	"time is over": context.DeadlineExceeded,
	"cancelled":    context.Canceled, // of a client that was closed
	"busy":         etcdlock.ErrBusy,
	"lost":         etcdlock.ErrLost,
	"closed":       etcdlock.ErrClosed,
	"no space":     rpctypes.ErrNoSpace,
	"corrupt":      rpctypes.ErrCorrupt,
}

const unexpected = "an error that nobody expects"

// refused notes an error of a Lock.
func (h *history) refused(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, target := range expected {
		if errors.Is(err, target) {
			h.refusals[name]++
			return
		}
	}
	if status.Code(err) == codes.Canceled || strings.HasSuffix(err.Error(), "the client was closed") {
		h.refusals["cancelled"]++
		return
	}
	h.refusals[err.Error()]++
	h.wrong = append(h.wrong, unexpected+": "+err.Error())
}

// strike notes that a lease is about to be revoked, or a ticket to be removed, by hand.
func strike[ID comparable](h *history, all map[ID]int64, one ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, before := all[one]; !before {
		all[one] = h.now()
	}
}

func (h *history) fail(what string) { noted(h, &h.wrong, what) }
