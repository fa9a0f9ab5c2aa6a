package link

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"time"
	"weak"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// streamKey marks the contexts of watches that must not share a stream with
// earlier ones. The client opens one stream for each set of metadata; the server
// does not look at this key.
const streamKey = "etcdlock-stream"

// silentFor is how long a stream may leave watches unanswered that callers have given up.
const silentFor = time.Second

// Streams chooses the gRPC stream that all watches of a client share. If its endpoint swallows packets, they
// all stay silent until gRPC notices, after 10 s at least. Then the stream is left for another one, and all its
// watches end: a connection may have as few as two streams, one of them for requests. The zero value is ready,
// and safe for concurrent use.
type Streams struct {
	mu         sync.Mutex
	number     int64
	ctx        context.Context // of the watches on the current stream; nil before the first
	end        context.CancelFunc
	asked      int       // watches on the current stream that are neither answered nor given up
	unanswered time.Time // since when watches have been asked for without an answer; zero: they are not
}

// streams are the Streams of each client, by its weak pointer.
var streams sync.Map

// StreamsOf returns the Streams of a client. Its sessions and followers have them in common.
func StreamsOf(c *clientv3.Client) *Streams {
	key := weak.Make(c)
	s, known := streams.Load(key)
	if !known {
		if s, known = streams.LoadOrStore(key, new(Streams)); !known {
			runtime.AddCleanup(c, func(key weak.Pointer[clientv3.Client]) { streams.Delete(key) }, key)
		}
	}
	return s.(*Streams)
}

// WatchContext prepares ctx for a watch: the watch ends, instead of staying
// silent for ever, when its member has lost the leader; and it uses the
// current stream, whose number is returned for [Streams.LeaveStream], and ends with it. Outgoing
// metadata of ctx do not travel, or each caller's would open a stream. The caller must end ctx.
func (s *Streams) WatchContext(ctx context.Context) (context.Context, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil {
		s.ctx, s.end = context.WithCancel(context.Background())
	}
	ctx, end := context.WithCancel(ctx)
	detach := context.AfterFunc(s.ctx, end)
	context.AfterFunc(ctx, func() { detach() })
	ctx = clientv3.WithRequireLeader(metadata.NewOutgoingContext(ctx, metadata.MD{}))
	if s.number > 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, streamKey, strconv.FormatInt(s.number, 10))
	}
	return ctx, s.number
}

// LeaveStream ends the watches on the stream of the given number, and makes later ones use another stream, and
// so, in turn, other endpoints. Call it when a watch has missed an event or was refused.
func (s *Streams) LeaveStream(number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave(number)
}

func (s *Streams) leave(number int64) {
	if s.number != number {
		return
	}
	if s.end != nil {
		s.end()
	}
	s.number, s.ctx, s.end, s.asked, s.unanswered = number+1, nil, nil, 0, time.Time{}
}

func (s *Streams) left(number int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.number != number
}

// Asked is called before a watch is asked for on the given stream. Answered or Unanswered follow.
func (s *Streams) Asked(number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.number != number {
		return
	}
	s.asked++
	if s.unanswered.IsZero() {
		s.unanswered = time.Now()
	}
}

// Answered says that a watch was created or refused.
func (s *Streams) Answered(number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.number != number {
		return
	}
	s.asked--
	s.unanswered = time.Time{}
	if s.asked > 0 {
		s.unanswered = time.Now()
	}
}

// Unanswered says that a watch was not answered within limit, or while its caller waited. The stream is left if it
// has answered none for that long, or for a second. It is not left if it is only slow, since thousands of watches
// have come at once. Callers that give up early find a silent stream together.
func (s *Streams) Unanswered(number int64, limit time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.number != number {
		return
	}
	s.asked--
	if time.Since(s.unanswered) >= min(limit, silentFor) && !s.unanswered.IsZero() {
		s.leave(number)
	}
}

// keepStream keeps the given stream open while no watch uses it, until the session ends or leaves it:
// the client of a user with a password authenticates for every stream that it opens. For that there
// is a watch that never tells anything, on key, which the user may read.
func (l *Link) keepStream(stream int64, key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client.Username == "" || l.ctx.Err() != nil || l.keeps {
		return
	}
	ctx, end := context.WithCancel(l.ctx)
	watchCtx, current := l.WatchContext(ctx)
	if current != stream {
		end()
		return
	}
	l.keeps = true
	l.running.Go(func() {
		defer func() {
			end()
			l.mu.Lock()
			defer l.mu.Unlock()
			l.keeps = false
		}()
		events := l.client.Watch(watchCtx, key, clientv3.WithFilterPut(), clientv3.WithFilterDelete(),
			clientv3.WithProgressNotify()) // so that after a disconnection etcd need not look far back
		for {
			select {
			case response, ok := <-events:
				if !ok || response.Err() != nil {
					return
				}
			case <-watchCtx.Done():
				return
			}
		}
	})
}
