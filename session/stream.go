package session

import (
	"context"
	"strconv"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// streamKey marks the contexts of watches that must not share a stream with
// earlier ones. The client opens one stream for each set of metadata; the server
// does not look at this key.
const streamKey = "etcdlock-stream"

// Streams chooses the gRPC stream that watches share. All watches of a client share one
// by default; if its endpoint swallows packets, they all stay silent until gRPC notices,
// which takes it at least 10 s. The zero value is ready, and safe for concurrent use.
type Streams struct{ current atomic.Int64 }

// WatchContext prepares ctx for a watch: the watch ends, instead of staying
// silent for ever, when its member has lost the leader; and it uses the
// current stream, whose number is returned for [Streams.LeaveStream].
func (s *Streams) WatchContext(ctx context.Context) (context.Context, int64) {
	stream := s.current.Load()
	ctx = clientv3.WithRequireLeader(ctx)
	if stream > 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, streamKey, strconv.FormatInt(stream, 10))
	}
	return ctx, stream
}

// LeaveStream makes later watches use another stream than the one of the given
// number, and so, in turn, other endpoints. Call it when a watch was not
// created in time or has missed an event.
func (s *Streams) LeaveStream(number int64) { s.current.CompareAndSwap(number, number+1) }
