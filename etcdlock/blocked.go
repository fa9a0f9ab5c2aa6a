package etcdlock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/etcdlock/locks/fairqueue"
)

// BlockedError explains a wait that timed out: who owned the lock then, and how many stood
// ahead. It is found with errors.As in the error of Lock and the like if the context's
// deadline ended the wait, and that could be read within 200 ms (one request; not in a queue
// of more than 1,000, nor WithLocalHandover before the process is in line). It wraps
// context.DeadlineExceeded.
type BlockedError struct {
	Owner fairqueue.Owner // zero if the owner is of another kind than ours
	Value string          // of the owner's key, which says more then
	Key   string          // of the owner, for [ForceRelease]
	Token Token           // of the owner
	Ahead int             // how many, the owner included; who waits WithLocalHandover counts processes
	Err   error           // that ended the wait
}

func (e *BlockedError) Error() string {
	return fmt.Sprintf("%v; %d ahead, owned by %s, token %d", e.Err, e.Ahead, e.who(), e.Token)
}

func (e *BlockedError) Unwrap() error { return e.Err }

func (e *BlockedError) who() string {
	if e.Owner == (fairqueue.Owner{}) {
		return fmt.Sprintf("%q", e.Value)
	}
	who := fmt.Sprintf("%s (%s, process %d)", e.Owner.Host, e.Owner.Program, e.Owner.PID)
	if e.Owner.Label != "" {
		who += fmt.Sprintf(" %q", e.Owner.Label)
	}
	return strings.TrimSpace(who) + " since " + e.Owner.Since.UTC().Format(time.RFC3339)
}

// explainTimeout bounds the request for it: the caller's time is over already.
const explainTimeout = 200 * time.Millisecond

func explain(c claim, err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), explainTimeout)
	defer cancel()
	owner, ahead, ok := c.Ahead(ctx)
	if !ok {
		return err
	}
	return &BlockedError{
		Owner: owner.Owner, Value: string(owner.Value), Key: owner.Key, Token: Token(owner.Revision),
		Ahead: ahead, Err: err,
	}
}
