package request

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"
	"weak"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// probeTimeout bounds a request that does not leave the process, unless the connection recovers just then.
const probeTimeout = 100 * time.Millisecond

// ByClient has a T for each client. It is forgotten with the client, so it must not refer to it. The zero value is ready.
type ByClient[T any] struct{ all sync.Map } // by the client's weak pointer

// Of returns the T of c. The first time it is the zero value. Safe for concurrent use.
func (b *ByClient[T]) Of(c *clientv3.Client) *T {
	key := weak.Make(c)
	t, known := b.all.Load(key)
	if !known {
		if t, known = b.all.LoadOrStore(key, new(T)); !known {
			runtime.AddCleanup(c, func(key weak.Pointer[clientv3.Client]) { b.all.Delete(key) }, key)
		}
	}
	return t.(*T)
}

// ErrClientClosed is what [CheckClient] returns. It wraps ErrLost: no session of that client lives, nor will.
var ErrClientClosed error = clientClosed{}

type clientClosed struct{}

func (clientClosed) Error() string { return "the client was closed" }

func (clientClosed) Unwrap() error { return ErrLost }

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

// explained is an error that says what is wrong with the connection.
type explained struct {
	error
	trouble string
}

func (e explained) Error() string { return fmt.Sprintf("%v (%s)", e.error, e.trouble) }

func (e explained) Unwrap() error { return e.error }

// Explain adds to err, once, what is wrong with c's connection, such as a certificate that is not trusted, if err
// says that a context has ended. Requests of etcd's client wait for a connection, so
// their own errors do not say that. The addition is text only. No request is made. Calls of this module add it
// themselves. If err comes of a closed client, it wraps [ErrClientClosed].
func Explain(c *clientv3.Client, err error) error {
	if IsAnswer(err, errConnectionClosing) && !errors.Is(err, ErrClientClosed) && CheckClient(c) != nil {
		return fmt.Errorf("%w (%w)", ErrClientClosed, err)
	}
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) || errors.As(err, new(explained)) {
		return err
	}
	if trouble := Trouble(c); trouble != "" {
		return explained{err, trouble}
	}
	return err
}

// AwaitConnection waits until c has a connection, or ctx or life ends, and returns why it has none. A request that
// begins afterwards is sent at once. One that waits for a connection in gRPC does not tell whether it was sent.
func AwaitConnection(ctx, life context.Context, c *clientv3.Client) error {
	if Connected(c) {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	conn := c.ActiveConnection()
	for state := conn.GetState(); ; state = conn.GetState() {
		switch state {
		case connectivity.Ready, connectivity.Shutdown: // which the request reports
			return nil
		case connectivity.Idle:
			conn.Connect()
		}
		if !conn.WaitForStateChange(ctx, state) {
			return ctx.Err()
		}
	}
}

// Connected reports whether a request of c may be in flight.
func Connected(c *clientv3.Client) bool {
	conn := c.ActiveConnection()
	return conn == nil || conn.GetState() == connectivity.Ready
}

// Trouble says what is wrong with c's connection. It returns "" if the connection stands, or c has none of its own.
func Trouble(c *clientv3.Client) string {
	conn := c.ActiveConnection()
	if conn == nil {
		return ""
	}
	switch conn.GetState() {
	case connectivity.TransientFailure:
		ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
		defer cancel()
		// It fails at once with the reason, since it does not wait for a connection.
		_, err := etcdserverpb.NewMaintenanceClient(conn).Status(ctx, &etcdserverpb.StatusRequest{}, grpc.WaitForReady(false))
		if err != nil && ctx.Err() == nil {
			return status.Convert(err).Message()
		}
	case connectivity.Connecting, connectivity.Idle:
		return "no connection to " + strings.Join(c.Endpoints(), ", ") + " so far"
	}
	return ""
}
