package session

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"
)

var errClientClosed = errors.New("the client was closed")

// CheckClient returns an error that says so if c was closed, and nil otherwise. It makes no request.
// No request of a closed client will ever be answered. Safe for concurrent use.
func CheckClient(c *clientv3.Client) error {
	conn := c.ActiveConnection()
	switch {
	case conn != nil && conn.GetState() != connectivity.Shutdown:
		return nil
	case conn == nil && (c.Ctx() == nil || c.Ctx().Err() == nil): // a client made by hand
		return nil
	}
	return errClientClosed
}

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
		s.lose(errClientClosed)
	})
	context.AfterFunc(s.ctx, func() { stop() })
}
