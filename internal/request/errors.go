package request

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The ends of a session. Package session exports them.
var (
	ErrLost   = errors.New("etcdlock: lost")
	ErrClosed = errors.New("etcdlock: session closed")
)

// effect is what is known about a failed request beyond its error.
type effect int

const (
	unsent   effect = iota + 1 // etcd never got it
	unsure                     // it may have taken effect, or may yet
	inFlight                   // as unsure, but its outcome will be reported
)

type known struct {
	error
	effect effect
}

func (k known) Unwrap() error { return k.error }

// effectOf returns 0 if nothing more is known.
func effectOf(err error) effect {
	var k known
	if errors.As(err, &k) {
		return k.effect
	}
	return 0
}

// Unsent is err as that of a request that etcd never got.
func Unsent(err error) error { return known{err, unsent} }

// Unsure is err as that of a request that may have taken effect, or may yet, whatever err says.
func Unsure(err error) error { return known{err, unsure} }

// InFlight is err as that of a request whose outcome will not be reported to its caller.
func InFlight(err error) error { return known{err, inFlight} }

// IsInFlight reports whether err is that of a request whose outcome will not be reported to its caller.
func IsInFlight(err error) bool { return effectOf(err) == inFlight }

// Doubtful reports whether a write that failed with err may nevertheless have
// been applied, or may yet be: the answer was lost, or the request is held up
// somewhere between here and the server; or etcd says that it has no space, which
// may be since that write.
func Doubtful(err error) bool {
	if err == nil {
		return false
	}
	switch effectOf(err) {
	case unsure, inFlight:
		return true
	case unsent:
		return false
	}
	switch codeOf(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.NotFound,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented:
		return false
	case codes.ResourceExhausted:
		// Etcd says that there is no space of what it has applied as well, if the last of it went between
		// the check at the door and that; and gRPC complains of an answer that is too large.
		return !IsAnswer(err, rpctypes.ErrTooManyRequests)
	case codes.DataLoss:
		// Etcd refuses this before it applies anything, on every member alike: the alarm is a raft entry.
		return !IsAnswer(err, rpctypes.ErrCorrupt)
	}
	return true
}

// Refused reports whether there has been an answer that will not change, so that nothing is in flight any
// more. That does not say whether anything was applied.
func Refused(err error) bool {
	return err != nil && !Passing(err) && (!Doubtful(err) || codeOf(err) == codes.ResourceExhausted)
}

// Passing reports whether a request that failed with err may well succeed a moment later,
// as with a member that is down; not so if it was refused (permission denied, no space).
func Passing(err error) bool {
	switch codeOf(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Aborted, codes.Internal:
		return true
	case codes.ResourceExhausted:
		return IsAnswer(err, rpctypes.ErrTooManyRequests)
	case codes.InvalidArgument:
		// Somebody changed users or roles at the same time.
		return IsAnswer(err, rpctypes.ErrAuthOldRevision)
	case codes.Unknown:
		// During a change of leader: a proposal that raft dropped, a lease without a primary lessor.
		return IsAnswer(err, errProposalDropped) || IsAnswer(err, errNoPrimaryLessor)
	case codes.Canceled:
		// The context of the attempt was not over, so it is the server that
		// cancelled, as one does that is being stopped, or the client was closed.
		return !IsAnswer(err, errConnectionClosing)
	}
	return false
}

func codeOf(err error) codes.Code {
	var etcd rpctypes.EtcdError
	switch {
	case errors.As(err, &etcd):
		return etcd.Code()
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	}
	return status.Code(err)
}

// Ended returns the error of ctx, with its cause and the last answer where they say more. If ctx is not over, it returns
// last.
func Ended(ctx context.Context, last error) error {
	err := ctx.Err()
	if err == nil {
		return last
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrLost), errors.Is(cause, ErrClosed):
		err = fmt.Errorf("%w: %v", err, cause) //nolint:errorlint // in words only: it is not this session, nor what is asked for
	case cause == context.DeadlineExceeded: //nolint:errorlint // of the context that a Grace prolongs
		err = cause
	case !errors.Is(cause, err):
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if last != nil && !errors.Is(last, context.Canceled) && !errors.Is(last, context.DeadlineExceeded) {
		err = fmt.Errorf("%w (last answer: %w)", err, last)
	}
	return Instead(last, err)
}

// Instead returns err as the error of the request that failed with last: with what is known of its effect.
func Instead(last, err error) error {
	switch {
	case IsInFlight(last):
		return InFlight(err)
	case Doubtful(last):
		return Unsure(err)
	case effectOf(last) == unsent:
		return Unsent(err)
	}
	return err
}

// What etcd and gRPC say without a variable of package rpctypes for it.
var (
	errProposalDropped   = errors.New("raft proposal dropped")
	errNoPrimaryLessor   = errors.New("not a primary lessor")
	errConnectionClosing = errors.New("grpc: the client connection is closing")
)

// IsAnswer reports whether err is the given answer of etcd, an error of package rpctypes, or wraps it.
// Other than errors.Is it finds it in whichever form: as a status of gRPC, which rpctypes.Error does not
// recognize once an interceptor has wrapped it; or as the reason why a watch was cancelled.
func IsAnswer(err, answer error) bool {
	var etcd rpctypes.EtcdError
	var grpc interface{ GRPCStatus() *status.Status }
	said := ""
	switch {
	case errors.As(err, &etcd):
		said = etcd.Error()
	case errors.As(err, &grpc):
		said = grpc.GRPCStatus().Message()
	}
	return strings.Contains(said, rpctypes.ErrorDesc(answer))
}
