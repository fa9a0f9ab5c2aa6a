package embedtest

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var errLost = status.Error(codes.Unavailable, "embedtest: lost")

// interceptUnary is called by the gRPC server for every request.
func (p *process) interceptUnary(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	method := shortName(info.FullMethod)
	cluster := p.member.cluster
	defer cluster.calls.enter(method)()
	cluster.calls.count(method)
	f := cluster.faults.claim(p.member, method, request, loseRequest, loseReply, hold, refuse)
	if f == nil {
		return handle(ctx, request)
	}
	switch f.kind {
	case refuse:
		f.bite()
		return nil, f.err
	case loseRequest:
		f.bite()
		return nil, p.silence(ctx, f)
	case hold:
		f.bite()
		if !p.holdBack(context.Background(), f, time.Now()) {
			return nil, errLost
		}
		patient, cancel := p.outliving(ctx)
		defer cancel()
		return handle(patient, request)
	default: // loseReply
		patient, cancel := p.outliving(ctx)
		defer cancel()
		answer, err := handle(patient, request)
		if err != nil {
			f.unclaim()
			return answer, err
		}
		f.bite()
		return nil, p.silence(ctx, f)
	}
}

// outliving returns a context that does not end when the client gives up, but
// when the member does.
func (p *process) outliving(ctx context.Context) (context.Context, context.CancelFunc) {
	patient, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() { // ends with cancel
		select {
		case <-p.stopping:
			cancel()
		case <-patient.Done():
		}
	}()
	return patient, cancel
}

// silence keeps the client waiting.
func (p *process) silence(ctx context.Context, f *Fault) error {
	select {
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-f.healed:
	case <-p.stopping:
	}
	return errLost
}

// holdBack waits until f lets go what came at the given time, and reports false
// if the member or the context ended first.
func (p *process) holdBack(ctx context.Context, f *Fault, came time.Time) bool {
	var due <-chan time.Time
	if f.delay >= 0 {
		due = time.After(f.delay - time.Since(came))
	}
	select {
	case <-due:
	case <-f.healed:
	case <-ctx.Done():
		return false
	case <-p.stopping:
		return false
	}
	return true
}

// interceptStream is called by the gRPC server for every stream.
func (p *process) interceptStream(server any, inner grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	s := &faultyStream{ServerStream: inner, process: p, method: shortName(info.FullMethod)}
	defer p.member.cluster.calls.enter(s.method)()
	return s.finish(handle(server, s))
}
