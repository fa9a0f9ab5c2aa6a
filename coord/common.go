package coord

import (
	"context"
	"fmt"
	"reflect"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

// common is what all recipes have: a name, where its state is, and sessions.
type common struct {
	name    string
	source  session.Source
	options options
	folder  string // in etcd, without a slash at its end
	err     error  // of the name
}

func newCommon(kind string, source session.Source, name string, opts []Option) common {
	if v := reflect.ValueOf(source); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		panic("coord: " + kind + " needs a session source")
	}
	c := common{name: name, source: source, options: collect(kind, opts)}
	c.folder, c.err = c.options.folder(name)
	return c
}

// Name returns the name given to the constructor.
func (c *common) Name() string { return c.name }

// ready panics if a call is a mistake in the program, and returns the error of the name.
func (c *common) ready(ctx context.Context) error {
	if c.source == nil {
		panic("coord: a value of this package is made with its constructor")
	}
	if ctx == nil {
		panic("coord: nil context")
	}
	return c.err
}

// client is the one to read with. It needs no session if the source is a Session or a Keeper. A closed one is a loss, as
// it is to a wait for a lock; etcd's client would try for seconds.
func (c *common) client(ctx context.Context) (*clientv3.Client, error) {
	if has, ok := c.source.(interface{ Client() *clientv3.Client }); ok {
		return has.Client(), request.CheckClient(has.Client())
	}
	s, err := c.source.Session(ctx)
	if err != nil {
		return nil, err
	}
	return s.Client(), nil
}

// failed wraps err unless it is nil.
func (c *common) failed(op string, err error) error { return failed(op, c.name, err) }

// mostCounted bounds what one read of all can be.
const mostCounted = 10_000

func needCount(what string, n int) {
	if n < 1 || n > mostCounted {
		panic(fmt.Sprintf("coord: the number of %s, %d, is not between 1 and %d", what, n, mostCounted))
	}
}
