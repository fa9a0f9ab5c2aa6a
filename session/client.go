package session

import (
	"context"

	"google.golang.org/grpc/connectivity"

	"github.com/etcdlock/locks/internal/request"
)

// endWithClient ends the session as lost when its client is closed: nothing can renew it any more.
// The client's context ends then, but also with the one in its Config, which closes nothing.
func (s *Session) endWithClient() {
	if s.client.Ctx() == nil {
		return
	}
	stop := context.AfterFunc(s.client.Ctx(), func() {
		for conn := s.client.ActiveConnection(); conn != nil; {
			state := conn.GetState()
			if state == connectivity.Shutdown {
				break
			}
			if !conn.WaitForStateChange(s.ctx, state) {
				return
			}
		}
		s.lose(request.ErrClientClosed)
	})
	context.AfterFunc(s.ctx, func() { stop() })
}
