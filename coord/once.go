package coord

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

const (
	// largestOutcome is how long the value of an [Outcome] may be.
	largestOutcome = 64 << 10

	// longestLease is how many seconds etcd's leases have at most: 285 years.
	longestLease = 9_000_000_000
)

// Once is work that one process does for all: a migration, the first start of a system, or, with [WithExpiry], the
// calculation of a value that is kept for a time. A mark in etcd says that it is done. A Once is safe for concurrent use.
type Once struct{ common }

// Outcome is the result of the function of [Once.Do].
type Outcome struct {
	// Value is kept with the mark, and returned to every caller. It has 64 KiB at most.
	Value string

	// Writes take effect in etcd together with the mark, in one transaction, so exactly once. etcd allows 128 operations in
	// a transaction by default, of which the mark is one.
	Writes []clientv3.Op
}

// NewOnce returns the Once of name, with sessions from src. No request is made; a name that cannot be one is reported by the
// first call ([etcdlock.ErrInvalidName]). A nil src panics.
func NewOnce(src session.Source, name string, opts ...Option) *Once {
	return &Once{newCommon(aOnce, src, name, opts)}
}

// Do returns the value of the mark. If there is no mark, it waits in line for a lock, calls fn under it unless there is a mark
// by then, and makes the mark when fn has returned without an error. So fn is called by one caller at a time. A waiter
// returns as soon as there is a mark, whatever its place in line.
//
// fn's context ends with ctx and with the loss of the lock, as with [etcdlock.Do]. fn must not call Do of the same name. If fn
// returns an error, or panics, there is no mark, and the next caller in line calls its fn.
//
// fn is called at least once. If its process crashes, or loses the lock, after fn has done its work and before the mark is
// made, the next caller does it again. Put writes that must not happen twice into the Writes of the [Outcome], or guard them
// with the Hold's token.
//
// The error is fn's, unwrapped, or one of [etcdlock.Mutex.Lock]. It wraps [etcdlock.ErrLost] if the lock was lost before the
// mark was made, [etcdlock.ErrOutcomeUnknown] if the mark may have been made ([Once.Done] tells), or [etcdlock.ErrTooLarge].
//
// With a mark Do costs one read. Otherwise it costs two reads, a lock, a transaction and an unlock, with WithExpiry also
// the grant of a lease. A waiter costs a watch.
func (o *Once) Do(ctx context.Context, fn func(ctx context.Context, h *etcdlock.Hold) (Outcome, error)) (value string, err error) {
	if fn == nil {
		panic("coord: Do needs a function")
	}
	if err := o.ready(ctx); err != nil {
		return "", o.failed("do", err)
	}
	mark, err := o.read(ctx)
	if err != nil || mark != nil {
		return mark.text(), o.failed("do", err)
	}
	line := &onceLine{once: o}
	var done bool     // there is a mark, so a later loss of the lock does not matter
	var failure error // fn's
	err = etcdlock.Do(ctx, line, func(ctx context.Context, h *etcdlock.Hold) error {
		mark, err := o.read(ctx)
		if err != nil || mark != nil {
			value, done = mark.text(), mark != nil
			return err
		}
		var outcome Outcome
		if outcome, failure = fn(ctx, h); failure != nil {
			return failure
		}
		value, err = o.finish(ctx, h, outcome)
		done = err == nil
		return err
	})
	switch {
	case done:
		return value, nil
	case failure != nil:
		return "", err
	case line.mark != nil:
		return line.mark.text(), nil
	}
	return "", o.failed("do", err)
}

// finish makes the mark of an outcome.
func (o *Once) finish(ctx context.Context, h *etcdlock.Hold, outcome Outcome) (string, error) {
	if n := len(outcome.Value); n > largestOutcome {
		return "", fmt.Errorf("%w: the value of an outcome has %d bytes, at most %d are allowed", etcdlock.ErrTooLarge, n, largestOutcome)
	}
	// The work is done, so a ctx that ends now should not be the reason to do it again.
	ctx, cancel := request.Grace(ctx)
	defer cancel()
	if err := o.mark(ctx, h, outcome); err != nil {
		return "", err
	}
	return outcome.Value, nil
}

// mark makes the mark, which lasts as long as its lease if there is an expiry.
func (o *Once) mark(ctx context.Context, h *etcdlock.Hold, outcome Outcome) error {
	client, err := o.client(ctx)
	if err != nil {
		return err
	}
	var options []clientv3.OpOption
	if o.options.expiry > 0 {
		lease, err := o.grant(ctx, client)
		if err != nil {
			return err
		}
		options = append(options, clientv3.WithLease(lease))
	}
	value := onceMark{h.Token(), outcome.Value}.String()
	writes := append(slices.Clip(outcome.Writes), clientv3.OpPut(o.key(), value, options...))
	unknown := false // whether an attempt has taken effect
	err = session.Retry(ctx, func(ctx context.Context) error {
		absent := clientv3.Compare(clientv3.CreateRevision(o.key()), "=", 0)
		response, err := h.Txn(ctx).If(absent).Then(writes...).Else(clientv3.OpGet(o.key())).Commit()
		unknown = unknown || errors.Is(err, etcdlock.ErrOutcomeUnknown)
		if err != nil || response.Succeeded {
			return bare(err)
		}
		// The lock keeps other callers out, so an earlier attempt has made it.
		if kvs := response.Responses[0].GetResponseRange().Kvs; len(kvs) == 0 || string(kvs[0].Value) != value {
			return errForeignMark
		}
		return nil
	})
	if err != nil && unknown && !errors.Is(err, etcdlock.ErrOutcomeUnknown) {
		return fmt.Errorf("%w: %w", etcdlock.ErrOutcomeUnknown, err)
	}
	return err
}

var errForeignMark = errors.New("coord: the mark was made by a program that does not have the lock")

// grant returns a lease for a mark. If no mark is bound to it in the end, it expires by itself.
func (o *Once) grant(ctx context.Context, client *clientv3.Client) (lease clientv3.LeaseID, err error) {
	seconds := min(int64((o.options.expiry-1)/time.Second)+1, longestLease)
	err = session.Retry(ctx, func(ctx context.Context) error {
		answer, err := client.Grant(ctx, seconds)
		if err == nil {
			lease = answer.ID
		}
		return err
	})
	return lease, err
}

// Done returns the value of the mark, and whether there is one: one read. It needs no session.
func (o *Once) Done(ctx context.Context) (value string, done bool, err error) {
	if err := o.ready(ctx); err != nil {
		return "", false, o.failed("done", err)
	}
	mark, err := o.read(ctx)
	return mark.text(), mark != nil, o.failed("done", err)
}

// Reset removes the mark, so that the next [Once.Do] calls its function again. It waits in line for the lock, so also for a
// function that is being called. It costs a lock, a transaction and an unlock. The errors are those of [Once.Do]. Do not
// delete the key in another way: a caller that has got no answer for the mark that it made would make it again, with its
// writes.
func (o *Once) Reset(ctx context.Context) error {
	if err := o.ready(ctx); err != nil {
		return o.failed("reset", err)
	}
	err := etcdlock.Do(ctx, o.lock(nil), func(ctx context.Context, h *etcdlock.Hold) error {
		return session.Retry(ctx, func(ctx context.Context) error {
			_, err := h.Txn(ctx).Then(clientv3.OpDelete(o.key())).Commit()
			return err
		})
	})
	return o.failed("reset", err)
}

func (o *Once) key() string { return o.folder + "/once/done" }

func (o *Once) lock(waiting func(etcdlock.Waiting)) *etcdlock.Mutex {
	return etcdlock.NewMutex(o.source, "lock", etcdlock.WithNamespace(o.folder+"/once"), etcdlock.WithHooks(&etcdlock.Hooks{Waiting: waiting}))
}

// read returns the mark, or nil if there is none.
func (o *Once) read(ctx context.Context) (mark *onceMark, err error) {
	client, err := o.client(ctx)
	if err != nil {
		return nil, err
	}
	err = session.Retry(ctx, func(ctx context.Context) error {
		answer, err := client.Get(ctx, o.key())
		if err == nil && len(answer.Kvs) > 0 {
			mark, err = parseMark(answer.Kvs[0])
		}
		return err
	})
	return mark, o.explain(client, err)
}

// onceLine is the lock of a Once for one call of Do, which need not wait for it if somebody makes the mark.
type onceLine struct {
	once *Once
	mark *onceMark // was made before this call had the lock
}

// Lock implements [etcdlock.Locker].
func (l *onceLine) Lock(ctx context.Context) (*etcdlock.Hold, error) {
	waiting, stop := context.WithCancel(ctx)
	var following sync.WaitGroup
	finish := func() {
		stop()
		following.Wait()
	}
	defer finish() // also if a hook panics
	h, err := l.once.lock(func(etcdlock.Waiting) {
		following.Go(func() {
			if l.await(waiting); l.mark != nil {
				stop()
			}
		})
	}).Lock(waiting)
	if finish(); err == nil {
		l.mark = nil // it is read again under the lock, since it may have expired
	}
	return h, err
}

// TryLock implements [etcdlock.Locker].
func (l *onceLine) TryLock(ctx context.Context) (*etcdlock.Hold, error) {
	return l.once.lock(nil).TryLock(ctx)
}

// await waits for a mark. A failure is no loss: the wait for the lock goes on.
func (l *onceLine) await(ctx context.Context) {
	client, err := l.once.client(ctx)
	if err != nil {
		return
	}
	key := l.once.key()
	_ = newMirror(client, key, key+"\x00").await(ctx, func(keys tree) (bool, error) {
		kv := keys.get(key)
		if kv == nil {
			return false, nil
		}
		mark, err := parseMark(kv)
		l.mark = mark
		return err == nil, err
	})
}

// onceMark is the value of the key that says that a Once is done: a token, a space, and the value of the outcome.
type onceMark struct {
	token etcdlock.Token // of the hold under which it was made
	value string
}

func (m onceMark) String() string { return fmt.Sprintf("%d %s", m.token, m.value) }

func (m *onceMark) text() string {
	if m == nil {
		return ""
	}
	return m.value
}

func parseMark(kv *mvccpb.KeyValue) (*onceMark, error) {
	token, value, ok := strings.Cut(string(kv.Value), " ")
	number, err := strconv.ParseInt(token, 10, 64)
	if !ok || err != nil {
		return nil, fmt.Errorf("coord: key %q has another value than that of a mark", kv.Key)
	}
	return &onceMark{etcdlock.Token(number), value}, nil
}
