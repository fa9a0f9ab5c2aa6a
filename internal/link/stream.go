package link

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/etcdlock/locks/internal/request"
)

// streamKey marks the contexts of watches that must not share a stream with
// earlier ones. The client opens one stream for each set of metadata; the server
// does not look at this key.
const streamKey = "etcdlock-stream"

// silentFor is how long a stream may leave watches unanswered that callers have given up.
const silentFor = time.Second

var errNotCreated = errors.New("the watch was not created")

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

var streamsByClient request.ByClient[Streams]

// StreamsOf returns the Streams of a client. Its sessions and followers have them in common.
func StreamsOf(c *clientv3.Client) *Streams { return streamsByClient.Of(c) }

// Open watches key on the current stream of c. It returns when etcd has confirmed the watch: one round trip. It fails
// when ctx, limit or the stream ends before, with an error that satisfies [request.Passing]. If etcd refuses, other
// than because of a compaction, the stream is left.
//
// The watch ends with ctx, with its stream, or when its member has lost the leader, instead of staying silent for
// ever. Outgoing metadata of ctx do not travel, or each caller's would open a stream.
func (s *Streams) Open(ctx context.Context, c *clientv3.Client, limit time.Duration, key string, options ...clientv3.OpOption) (*Watch, error) {
	if err := ctx.Err(); err != nil { // the client would open a stream, and authenticate for it
		return nil, fmt.Errorf("%w: %w", errNotCreated, err)
	}
	ctx, stop := context.WithCancel(ctx)
	ctx, number := s.ask(ctx, stop)
	// The client's Watch itself blocks until the watch stands, so what bounds it must be able to end its context.
	tooLong := time.AfterFunc(limit, stop)
	events := c.Watch(ctx, key, append(slices.Clip(options), clientv3.WithCreatedNotify())...)
	created, ok := <-events
	inTime := tooLong.Stop()
	s.answered(number, ok, limit)
	err := created.Err()
	switch {
	case !inTime:
		err = fmt.Errorf("%w in time: %w", errNotCreated, context.DeadlineExceeded)
	case !ok: // ctx has ended, or the stream
		err = fmt.Errorf("%w: %w", errNotCreated, context.Canceled)
	case err != nil && !request.IsAnswer(err, rpctypes.ErrCompacted):
		// It may be the stream's fault: it keeps the token that it was opened with, and carries no new watches
		// when that has expired.
		s.LeaveStream(number)
	}
	if err != nil {
		stop()
		return nil, err
	}
	return &Watch{Events: events, Ended: ctx.Done(), From: created.Header.Revision, Stream: number, header: created.Header, stop: stop}, nil
}

// ask returns the context of a watch on the current stream, and its number. The context ends with the stream. A call of
// answered follows.
func (s *Streams) ask(ctx context.Context, stop func()) (context.Context, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil {
		s.ctx, s.end = context.WithCancel(context.Background())
	}
	if s.asked++; s.unanswered.IsZero() {
		s.unanswered = time.Now()
	}
	detach := context.AfterFunc(s.ctx, stop)
	context.AfterFunc(ctx, func() { detach() })
	ctx = clientv3.WithRequireLeader(metadata.NewOutgoingContext(ctx, metadata.MD{}))
	if s.number > 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, streamKey, strconv.FormatInt(s.number, 10))
	}
	return ctx, s.number
}

// answered notes that a watch was created or refused; or that it was not answered within limit, or while its caller
// waited. The stream is left if it has answered none for that long, or for a second. It is not left if
// it is only slow, since thousands of watches have come at once. Callers that give up early find a silent stream
// together.
func (s *Streams) answered(number int64, ok bool, limit time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.number != number {
		return
	}
	s.asked--
	switch {
	case ok && s.asked > 0:
		s.unanswered = time.Now()
	case ok:
		s.unanswered = time.Time{}
	case time.Since(s.unanswered) >= min(limit, silentFor):
		s.leave()
	}
}

// LeaveStream ends the watches on the stream of the given number, and makes later ones use another stream, and
// so, in turn, other endpoints. Call it when a watch has missed an event. A stream is left once.
func (s *Streams) LeaveStream(number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.number == number {
		s.leave()
	}
}

func (s *Streams) leave() {
	if s.end != nil {
		s.end()
	}
	s.number, s.ctx, s.end, s.asked, s.unanswered = s.number+1, nil, nil, 0, time.Time{}
}

func (s *Streams) left(number int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.number != number
}
