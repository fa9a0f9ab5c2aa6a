package request

import (
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"
)

// ErrClientClosed is what [CheckClient] returns.
var ErrClientClosed = errors.New("the client was closed")

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
	return ErrClientClosed
}
