package embedtest

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// faultyStream is a stream between a client and etcd's handler. From the first
// answer that is held back, a goroutine of its own delivers the answers, in order.
type faultyStream struct {
	grpc.ServerStream
	process *process
	method  string

	mu       sync.Mutex
	queue    []heldAnswer
	arrived  chan struct{} // nil until the first answer is held back
	cancel   context.CancelFunc
	done     chan struct{} // closed when deliver has returned
	failure  error         // of a delivery; returned by the next SendMsg
	lost     *Fault        // that made the last message vanish
	finished bool
}

type heldAnswer struct {
	message any
	fault   *Fault // nil: only waits for those before it
	came    time.Time
}

// RecvMsg is called by etcd's handler.
func (s *faultyStream) RecvMsg(message any) error {
	cluster := s.process.member.cluster
	for {
		if err := s.ServerStream.RecvMsg(message); err != nil {
			return err
		}
		cluster.calls.count(s.method)
		f := cluster.faults.claim(s.process.member, s.method, message, loseRequest, refuse)
		s.lose(f)
		if f == nil {
			return nil
		}
		f.bite()
		if f.kind == refuse {
			return f.err
		}
	}
}

// SendMsg is called by etcd's handler, from one goroutine at a time.
func (s *faultyStream) SendMsg(message any) error {
	f := s.process.member.cluster.faults.claim(s.process.member, s.method, message, loseReply, hold)
	if f != nil {
		defer f.bite()
		if f.kind == loseReply {
			s.lose(f)
			return nil
		}
	}
	s.mu.Lock()
	if f == nil && s.arrived == nil {
		s.mu.Unlock()
		return s.ServerStream.SendMsg(message)
	}
	defer s.mu.Unlock()
	if s.failure != nil || s.finished {
		return s.failure
	}
	if s.arrived == nil {
		ctx, cancel := context.WithCancel(s.Context())
		s.arrived, s.cancel, s.done = make(chan struct{}, 1), cancel, make(chan struct{})
		go s.deliver(ctx) // ends with finish
	}
	s.queue = append(s.queue, heldAnswer{message, f, time.Now()})
	wake(s.arrived)
	return nil
}

// lose notes what made a message vanish, or nil if it arrived.
func (s *faultyStream) lose(f *Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = f
}

func (s *faultyStream) deliver(ctx context.Context) {
	defer close(s.done)
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			finished := s.finished
			s.mu.Unlock()
			if finished {
				return
			}
			select {
			case <-s.arrived:
				continue
			case <-ctx.Done():
				return
			}
		}
		answer := s.queue[0]
		s.queue = s.queue[1:]
		s.mu.Unlock()

		if answer.fault != nil && !s.process.holdBack(ctx, answer.fault, answer.came) {
			return
		}
		if err := s.ServerStream.SendMsg(answer.message); err != nil {
			s.mu.Lock()
			s.failure = err
			s.mu.Unlock()
			return
		}
	}
}

// finish is for when the handler has returned err: nothing may be sent after that. Without an
// error the client has no more requests, as in a stream that is called like a unary method. It still gets
// the answers that are held back. It gets no answer if its last message or the answer was lost.
func (s *faultyStream) finish(err error) error {
	s.mu.Lock()
	s.finished = true
	started, lost := s.arrived != nil, s.lost
	s.mu.Unlock()
	if started {
		if err != nil {
			s.cancel()
		}
		wake(s.arrived)
		<-s.done
		s.cancel()
	}
	if err == nil && lost != nil {
		return s.process.silence(s.Context(), lost)
	}
	return err
}
