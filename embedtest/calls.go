package embedtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
)

// callCounter counts what comes in, by the method's short name, which is unique
// among etcd's services. The keys never change.
type callCounter map[string]*methodCounts

// methodCounts are those of one method. A unary call is a stream of one message.
type methodCounts struct{ messages, opened, open atomic.Int64 }

var services = []*grpc.ServiceDesc{
	&etcdserverpb.KV_ServiceDesc, &etcdserverpb.Watch_ServiceDesc, &etcdserverpb.Lease_ServiceDesc,
	&etcdserverpb.Cluster_ServiceDesc, &etcdserverpb.Maintenance_ServiceDesc, &etcdserverpb.Auth_ServiceDesc,
	&v3lockpb.Lock_ServiceDesc, &v3electionpb.Election_ServiceDesc,
}

func newCallCounter() callCounter {
	counter := callCounter{}
	for _, service := range services {
		for _, method := range service.Methods {
			counter[method.MethodName] = new(methodCounts)
		}
		for _, method := range service.Streams {
			counter[method.StreamName] = new(methodCounts)
		}
	}
	return counter
}

// check panics if there is no such method: a fault on it would never take effect.
func (c callCounter) check(method string) {
	if c[method] == nil {
		panic(fmt.Sprintf("embedtest: unknown method %q; etcd has %s",
			method, strings.Join(slices.Sorted(maps.Keys(c)), ", ")))
	}
}

func (c callCounter) count(method string) {
	if counts := c[method]; counts != nil {
		counts.messages.Add(1)
	}
}

// enter counts a stream until the returned function is called.
func (c callCounter) enter(method string) (leave func()) {
	counts := c[method]
	if counts == nil {
		return func() {}
	}
	counts.opened.Add(1)
	counts.open.Add(1)
	return func() { counts.open.Add(-1) }
}

// shortName returns the last part of a full method name, and "" for services
// that are not etcd's own: their names may clash with etcd's.
func shortName(fullMethod string) string {
	service, method, _ := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
	if strings.HasPrefix(service, "grpc.") {
		return ""
	}
	return method
}

// Calls returns how many requests of the method have come in at all members, by
// the names that [Cluster.LoseRequest] takes; an unknown one panics. For streams
// it is the number of messages received: a lease renewal counts as one
// LeaseKeepAlive, the creation of a watch as one Watch. Requests that a fault
// loses or refuses count too. A client's retries count each.
func (c *Cluster) Calls(method string) int64 {
	c.calls.check(method)
	return c.calls[method].messages.Load()
}

// OpenStreams returns how many streams of the method are open at all members now.
// The method is one that [Cluster.Calls] takes. A unary request counts while it is
// handled, because on a connection it is a stream too. A stream that its client has
// ended counts until the member notices.
func (c *Cluster) OpenStreams(method string) int64 {
	c.calls.check(method)
	return c.calls[method].open.Load()
}

// StreamsOpened returns how many streams of the method have been opened since the
// cluster's start, open ones included. It shows whether a client keeps a stream or
// opens another for each message.
func (c *Cluster) StreamsOpened(method string) int64 {
	c.calls.check(method)
	return c.calls[method].opened.Load()
}
