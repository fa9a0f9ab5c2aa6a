package embedtest

import (
	"context"
	"errors"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	firstReopen = time.Millisecond
	longReopen  = 100 * time.Millisecond
)

// watchCalls are what etcd's client sets for all calls.
var watchCalls = []grpc.CallOption{grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(math.MaxInt32)}

// watch is one watch, on one stream after the other if members end.
type watch struct {
	request     *etcdserverpb.WatchCreateRequest
	tellCreated bool

	answers chan clientv3.WatchResponse // from receive to deliver
	decided chan struct{}               // closed by decide: the watch stands, or has failed
	stood   bool                        // whether it is closed
	events  chan clientv3.WatchResponse // to the caller
}

func newWatch(request *etcdserverpb.WatchCreateRequest, tellCreated bool) *watch {
	return &watch{
		request:     request,
		tellCreated: tellCreated,
		answers:     make(chan clientv3.WatchResponse),
		decided:     make(chan struct{}),
		events:      make(chan clientv3.WatchResponse, 1),
	}
}

// receive opens streams until there is nothing more to tell.
func (one *watch) receive(ctx context.Context, remote etcdserverpb.WatchClient) {
	defer close(one.answers)
	for pause := firstReopen; ; pause = min(pause+pause/4, longReopen) {
		err := one.stream(ctx, remote)
		switch code := status.Code(err); {
		case err == nil || ctx.Err() != nil:
			return
		case code != codes.Unavailable && code != codes.Internal, errors.Is(rpctypes.Error(err), rpctypes.ErrNoLeader):
			one.answer(ctx, clientv3.WatchResponse{
				Header: &etcdserverpb.ResponseHeader{}, Canceled: true, CancelReason: rpctypes.ErrorDesc(err),
			})
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// stream follows one stream. Its error is the stream's; nil says that the watch is over.
func (one *watch) stream(ctx context.Context, remote etcdserverpb.WatchClient) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	stream, err := remote.Watch(ctx, watchCalls...)
	if err != nil {
		return err
	}
	create := &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: one.request}
	// If it fails, Recv says why.
	_ = stream.Send(&etcdserverpb.WatchRequest{RequestUnion: create})
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		response := clientv3.WatchResponse{
			Header: r.Header, Events: r.Events, CompactRevision: r.CompactRevision,
			Created: r.Created, Canceled: r.Canceled, CancelReason: r.CancelReason,
		}
		one.note(r)
		switch {
		case r.Created && r.Canceled:
			response.Created = false
			one.answer(ctx, response)
			return nil
		case r.Created:
			if one.tellCreated && !one.stood {
				one.events <- response // has room, and arrives even if ctx ends now
			}
			one.decide()
		case r.Canceled && r.CompactRevision == 0:
			return nil // without a word, as etcd's does
		default:
			one.answer(ctx, response)
			if r.Canceled {
				return nil
			}
		}
	}
}

// note makes a later stream go on where this one is.
func (one *watch) note(r *etcdserverpb.WatchResponse) {
	switch {
	case len(r.Events) > 0:
		one.request.StartRevision = r.Events[len(r.Events)-1].Kv.ModRevision + 1
	case !r.Created:
		one.request.StartRevision = r.Header.GetRevision() + 1
	case one.request.StartRevision == 0:
		one.request.StartRevision = r.Header.GetRevision()
	}
}

func (one *watch) answer(ctx context.Context, response clientv3.WatchResponse) {
	select {
	case one.answers <- response:
	case <-ctx.Done():
	}
}

func (one *watch) decide() {
	if !one.stood {
		one.stood = true
		close(one.decided)
	}
}

// deliver keeps what the caller has not taken yet: a stream must not wait for it.
func (one *watch) deliver(ctx context.Context) {
	var queue []clientv3.WatchResponse
	for answers := one.answers; answers != nil || len(queue) > 0; {
		var events chan<- clientv3.WatchResponse
		var first clientv3.WatchResponse
		if len(queue) > 0 {
			events, first = one.events, queue[0]
		}
		select {
		case response, ok := <-answers:
			if !ok {
				answers = nil
				continue
			}
			queue = append(queue, response)
		case events <- first:
			queue = queue[1:]
		case <-ctx.Done():
			return
		}
	}
}
