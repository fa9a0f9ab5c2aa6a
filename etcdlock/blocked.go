package etcdlock

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

// BlockedError explains a wait that timed out: which owner it waited for, and how many tickets were ahead. It is
// found with errors.As in the error of Lock and the like if the context's deadline ended the wait, and two reads
// within 200 ms could explain it (not in a queue of more than 1,000, nor WithLocalHandover before the process is in
// line). It wraps context.DeadlineExceeded.
type BlockedError struct {
	Owner fairqueue.Owner // zero for a candidate, and if another program owns the lock
	Value string          // of the owner's key, for those; the text has the beginning of it
	Key   string          // of the owner, for [ForceRelease]
	Token Token           // of the owner
	Ahead int             // tickets in etcd's queue, the owner's included
	Err   error           // that ended the wait

	// Foreign says that Key is no name that this module gives. It may be of a program that uses etcd's
	// concurrency package, or a mistake, which [ForceRelease] removes.
	Foreign bool
	Lease   clientv3.LeaseID // of the owner's key; without one, 0, the key stays until it is removed
}

func (e *BlockedError) Error() string {
	return fmt.Sprintf("%v; %d ahead, owned by %s, token %d", e.Err, e.Ahead, e.owner(), e.Token)
}

func (e *BlockedError) Unwrap() error { return e.Err }

func (e *BlockedError) owner() string {
	if e.Foreign {
		until := "which has no lease and stays until it is removed"
		if e.Lease != clientv3.NoLease {
			until = fmt.Sprintf("which stays until its lease %x is over or it is removed", e.Lease)
		}
		return fmt.Sprintf("the key %q of another program, value %q, %s (see Inspect and ForceRelease)", brief(e.Key), brief(e.Value), until)
	}
	if e.Owner == (fairqueue.Owner{}) {
		return fmt.Sprintf("%q", brief(e.Value))
	}
	owner := fmt.Sprintf("%s (%s, process %d)", brief(e.Owner.Host), brief(e.Owner.Program), e.Owner.PID)
	if e.Owner.Label != "" {
		owner += fmt.Sprintf(" %q", brief(e.Owner.Label))
	}
	return strings.TrimSpace(owner) + " since " + e.Owner.Since.UTC().Format(time.RFC3339)
}

// briefLength is how many bytes of a name, label or value are in the text of an error.
const briefLength = 128

func brief(s string) string {
	if len(s) <= briefLength {
		return s
	}
	return strings.ToValidUTF8(s[:briefLength], "") + "…"
}

// explainTimeout bounds the request that explains an error: the caller's time is over already.
const explainTimeout = 200 * time.Millisecond

// explainLoss reads the lease of a missing key to say how it was removed.
func explainLoss(s *session.Session, key string) error {
	ctx, cancel := context.WithTimeout(context.Background(), explainTimeout)
	defer cancel()
	lease, err := s.Client().TimeToLive(ctx, s.Lease())
	switch {
	case err != nil:
		return fmt.Errorf("%w: the key %s is not there any more", ErrLost, key)
	case lease.TTL <= 0:
		return fmt.Errorf("%w: the key %s is gone with its lease %x, which has expired or was revoked", ErrLost, key, s.Lease())
	}
	return fmt.Errorf("%w: the key %s was removed, by ForceRelease or by hand, though its lease lives", ErrLost, key)
}

func explain(c claim, err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), explainTimeout)
	defer cancel()
	owner, ahead, ok := c.Ahead(ctx)
	if !ok {
		return err
	}
	return &BlockedError{
		Owner: owner.Owner, Value: string(owner.Value), Key: owner.Key, Token: Token(owner.Revision),
		Ahead: ahead, Err: err, Foreign: owner.Foreign, Lease: owner.Lease,
	}
}
