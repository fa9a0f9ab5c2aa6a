package session

import (
	"context"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// streamKey marks the contexts of watches that must not share a stream with
// earlier ones. The client opens one stream for each set of metadata; the server
// does not look at this key.
const streamKey = "etcdlock-stream"

// WatchContext prepares ctx for a watch: the watch ends, instead of staying
// silent for ever, when its member has lost the leader; and it uses the session's
// current watch stream, whose number is returned for [Session.LeaveStream].
func (s *Session) WatchContext(ctx context.Context) (context.Context, int) {
	s.mu.Lock()
	stream := s.stream
	s.mu.Unlock()
	ctx = clientv3.WithRequireLeader(ctx)
	if stream > 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, streamKey, strconv.Itoa(stream))
	}
	return ctx, stream
}

// LeaveStream makes later watches use another stream than the one of the given
// number, and so, in turn, other endpoints. All watches of a client share one
// stream by default; if its endpoint swallows packets, they all stay silent until
// gRPC notices, which takes it at least 10 s. Call it when a watch was not
// created in time or has missed an event.
func (s *Session) LeaveStream(number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stream == number {
		s.stream++
	}
}
