package certmagiclock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	patience       = 30 * time.Second // for one operation
	attemptTimeout = 3 * time.Second
	longestPause   = time.Second
)

// try repeats a request until etcd has answered it. A certificate that cannot be stored has to be obtained again, and
// certificate authorities limit how often.
func (v *values) try(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, longestPause) {
		attempt, end := context.WithTimeout(ctx, attemptTimeout)
		err := request(attempt)
		end()
		if err == nil || v.refused(err) {
			return err
		}
		select {
		case <-ctx.Done():
			if errors.Is(err, ctx.Err()) {
				return err
			}
			return fmt.Errorf("%w (last answer: %w)", ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}

// refused reports whether another attempt would fail as well.
func (v *values) refused(err error) bool {
	code := status.Code(err)
	if answer, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		code = answer.Code()
	}
	switch code {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition,
		codes.OutOfRange, codes.Unimplemented, codes.ResourceExhausted:
		return true
	}
	return v.client.Ctx().Err() != nil
}
