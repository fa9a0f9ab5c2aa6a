package embedtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Fault is a failure in a member's handling of requests. It affects every request that fits, from its creation until
// [Fault.Heal], or until it has affected (bitten) as many as [Times] says. If several faults fit a request, the
// oldest one takes effect. It stays when members restart.
//
// A fault sees a request after etcd's own checks of the connection (is there a
// leader, if one is required?) and does not reach messages between members,
// etcd's own requests (the revocation of an expired lease), or calls on
// [Member.Server].
type Fault struct {
	list   *faultList
	kind   faultKind
	method string
	delay  time.Duration
	err    error
	member *Member        // nil: any
	fits   func(any) bool // nil: always

	bitten chan struct{}
	healed chan struct{}

	// Guarded by the list's mu.
	left  int // bites to come; negative: no limit
	bites int
	over  bool
}

type faultKind int

const (
	loseRequest faultKind = iota
	loseReply
	hold
	refuse
)

// FaultOption limits a fault to some requests.
type FaultOption interface{ applyToFault(*Fault) }

type faultOptionFunc func(*Fault)

func (f faultOptionFunc) applyToFault(fault *Fault) { f(fault) }

// Once limits the fault to one request: Times(1). The default is no limit.
func Once() FaultOption { return Times(1) }

// Times limits the fault to n requests. The default is no limit.
func Times(n int) FaultOption { return faultOptionFunc(func(f *Fault) { f.left = n }) }

// On limits the fault to requests to that member. The default is any member.
func On(m *Member) FaultOption { return faultOptionFunc(func(f *Fault) { f.member = m }) }

// When limits the fault to protobuf messages for which fits returns true: the request, such as
// *etcdserverpb.TxnRequest, or the answer for faults that concern a stream's answers, such as
// *etcdserverpb.WatchResponse. The default is any message. fits is called from many goroutines; it must neither
// block, nor change or keep the message, nor call the cluster's methods.
func When(fits func(message any) bool) FaultOption {
	return faultOptionFunc(func(f *Fault) {
		if earlier := f.fits; earlier != nil {
			f.fits = func(message any) bool { return earlier(message) && fits(message) }
			return
		}
		f.fits = fits
	})
}

// LoseRequest loses requests of the method before etcd sees them: nothing is
// applied, and the client gets no answer until its own deadline, or Unavailable
// when the fault is healed or the member ends. On a stream the message is lost
// and the stream goes on.
//
// method is the last part of the gRPC method: Range, Put, Txn, LeaseGrant,
// LeaseKeepAlive, Watch and so on. An unknown one panics and lists all. This
// holds for every fault by method.
func (c *Cluster) LoseRequest(method string, opts ...FaultOption) *Fault {
	return c.addFault(&Fault{kind: loseRequest, method: method}, opts)
}

// LoseReply loses the answers of the method: the request is applied, even if the
// client gives up meanwhile. The client gets no answer until its own
// deadline, or Unavailable when the fault is healed or the member ends. An answer
// that is an error passes and does not count as a bite, since nothing was applied.
// On a stream the answer is lost for good and the stream goes on.
func (c *Cluster) LoseReply(method string, opts ...FaultOption) *Fault {
	return c.addFault(&Fault{kind: loseReply, method: method}, opts)
}

// Delay keeps requests of the method back for d. Then they are handled, even if
// the client has given up meanwhile, as when the network was slow. On a stream
// each answer arrives d later; order and throughput stay. Healing delivers at once
// what is being kept back.
func (c *Cluster) Delay(method string, d time.Duration, opts ...FaultOption) *Fault {
	return c.addFault(&Fault{kind: hold, method: method, delay: max(d, 0)}, opts)
}

// Hold is [Cluster.Delay] without an end: requests are kept back until the fault is healed, and handled or delivered
// then. Together with [Fault.Wait] a test chooses the moment at which a request is handled. If the member ends first,
// the requests are lost.
func (c *Cluster) Hold(method string, opts ...FaultOption) *Fault {
	return c.addFault(&Fault{kind: hold, method: method, delay: -1}, opts)
}

// Refuse answers requests of the method with err, and nothing is applied. An error
// of package rpctypes arrives at the client as that error, a gRPC status as that
// status, anything else with the code Unknown. On a stream it ends the whole
// stream at the next message that comes in. A client may retry by itself: etcd's
// does when it reads and the code is Unavailable.
func (c *Cluster) Refuse(method string, err error, opts ...FaultOption) *Fault {
	return c.addFault(&Fault{kind: refuse, method: method, err: statusOf(err)}, opts)
}

// DropKeepAlives loses the answers to lease renewals. The leases are renewed, but their owners get no answer.
func (c *Cluster) DropKeepAlives(opts ...FaultOption) *Fault {
	return c.LoseReply("LeaseKeepAlive", opts...)
}

// SwallowWatchEvents loses watch answers that carry events. They do not come after healing either. Notices that a
// watch was created or cancelled pass, and so do progress reports.
func (c *Cluster) SwallowWatchEvents(opts ...FaultOption) *Fault {
	carriesEvents := When(func(message any) bool {
		answer, ok := message.(*etcdserverpb.WatchResponse)
		return ok && len(answer.Events) > 0
	})
	return c.LoseReply("Watch", append([]FaultOption{carriesEvents}, opts...)...)
}

// Heal ends the fault. Requests that it keeps silent are answered with
// Unavailable, those that it holds or delays go on. It may be called more than
// once.
func (f *Fault) Heal() {
	f.list.mu.Lock()
	defer f.list.mu.Unlock()
	if f.over {
		return
	}
	f.over = true
	close(f.healed)
	f.list.faults = slices.DeleteFunc(f.list.faults, func(other *Fault) bool { return other == f })
}

// Bites returns how many requests, or answers on streams, the fault has affected.
func (f *Fault) Bites() int {
	f.list.mu.Lock()
	defer f.list.mu.Unlock()
	return f.bites
}

// Bitten returns a channel that is closed when the fault takes effect for the first time: when a request was lost,
// refused, or is being held; when a request whose answer is lost has been applied.
func (f *Fault) Bitten() <-chan struct{} { return f.bitten }

// Wait returns nil when the fault has taken effect, or the context's error.
func (f *Fault) Wait(ctx context.Context) error {
	select {
	case <-f.bitten:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("embedtest: no %s request was bitten: %w", f.method, ctx.Err())
	}
}

func statusOf(err error) error {
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		return status.Error(known.Code(), known.Error())
	}
	if err == nil {
		return status.Error(codes.Unknown, "refused")
	}
	return status.Convert(err).Err()
}

// faultList holds the faults that can still bite, the oldest first.
type faultList struct {
	mu     sync.Mutex
	faults []*Fault
}

func (c *Cluster) addFault(f *Fault, opts []FaultOption) *Fault {
	c.calls.check(f.method)
	f.list, f.left = &c.faults, -1
	f.bitten, f.healed = make(chan struct{}), make(chan struct{})
	for _, o := range opts {
		o.applyToFault(f)
	}
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	if f.left != 0 {
		c.faults.faults = append(c.faults.faults, f)
	}
	return f
}

// claim returns the fault of one of the kinds that is to bite the message, or
// nil. It uses up one of the fault's bites.
func (l *faultList) claim(m *Member, method string, message any, kinds ...faultKind) *Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.faults {
		if f.method != method || f.member != nil && f.member != m || !slices.Contains(kinds, f.kind) ||
			f.left == 0 || f.fits != nil && !f.fits(message) {
			continue
		}
		f.left--
		return f
	}
	return nil
}

// bite records that the fault has taken effect once more, and wakes the callers that wait for that.
func (f *Fault) bite() {
	f.list.mu.Lock()
	defer f.list.mu.Unlock()
	if f.bites == 0 {
		close(f.bitten)
	}
	f.bites++
}

// unclaim gives a bite back that came to nothing.
func (f *Fault) unclaim() {
	f.list.mu.Lock()
	defer f.list.mu.Unlock()
	f.left++
}
