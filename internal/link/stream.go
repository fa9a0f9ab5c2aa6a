package link

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
// current stream, whose number is returned for [Streams.LeaveStream]. Outgoing
// metadata of ctx do not travel, or each caller's would open a stream.
func (s *Streams) WatchContext(ctx context.Context) (context.Context, int64) {
	stream := s.current.Load()
	ctx = clientv3.WithRequireLeader(metadata.NewOutgoingContext(ctx, metadata.MD{}))
	if stream > 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, streamKey, strconv.FormatInt(stream, 10))
	}
	return ctx, stream
}

// LeaveStream makes later watches use another stream than the one of the given
// number, and so, in turn, other endpoints. Call it when a watch was not
// created in time or has missed an event.
func (s *Streams) LeaveStream(number int64) { s.current.CompareAndSwap(number, number+1) }

// keepStream keeps the given stream open while no watch uses it, until the session ends or leaves it:
// the client of a user with a password authenticates for every stream that it opens. For that there
// is a watch that never tells anything, on key, which the user may read.
func (l *Link) keepStream(stream int64, key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client.Username == "" || l.ctx.Err() != nil || l.leave != nil || stream != l.current.Load() {
		return
	}
	ctx, leave := context.WithCancel(l.ctx)
	watchCtx, _ := l.WatchContext(ctx)
	l.leave = leave
	l.running.Go(func() {
		defer func() {
			leave()
			l.mu.Lock()
			defer l.mu.Unlock()
			l.leave = nil
		}()
		events := l.client.Watch(watchCtx, key, clientv3.WithFilterPut(), clientv3.WithFilterDelete(),
			clientv3.WithProgressNotify()) // so that after a disconnection etcd need not look far back
		for {
			select {
			case response, ok := <-events:
				if !ok || response.Err() != nil {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
}

// LeaveStream is that of [Streams]. The stream ends with the watches that still use it.
func (l *Link) LeaveStream(number int64) {
	l.Streams.LeaveStream(number)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leave != nil && number != l.current.Load() {
		l.leave()
	}
}
