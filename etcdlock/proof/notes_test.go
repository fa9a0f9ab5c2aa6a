package proof_test

import (
	"context"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdlock/locks/etcdlock"
)

// What follows takes down what clients have been told.

func (h *history) addGrant(g grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.grants = append(h.grants, g)
}

func (h *history) addRelease(r release) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.releases = append(h.releases, r)
}

func (h *history) addTransfer(t transfer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.transfers = append(h.transfers, t)
}

func (h *history) addClosing(c closing) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closings = append(h.closings, c)
}

// expected are the errors that a Lock may return in a storm.
var expected = map[string]error{
	"time is over": context.DeadlineExceeded,
	"cancelled":    context.Canceled, // of a client that was closed
	"busy":         etcdlock.ErrBusy,
	"lost":         etcdlock.ErrLost,
	"closed":       etcdlock.ErrClosed,
	"no space":     rpctypes.ErrNoSpace,
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

// strikeLease notes that a lease is about to be revoked.
func (h *history) strikeLease(lease clientv3.LeaseID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, before := h.leases[lease]; !before {
		h.leases[lease] = h.now()
	}
}

// strike notes that a ticket is about to be removed by hand.
func (h *history) strike(id ticketID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, before := h.struck[id]; !before {
		h.struck[id] = h.now()
	}
}

func (h *history) fail(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrong = append(h.wrong, what)
}
