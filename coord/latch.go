package coord

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// Latch opens when a number of arrivals have been counted, and stays open until [Latch.Reset]. An arrival may be a part of a
// job that is done, or a machine that is ready. Arrivals stay: that of a process that has crashed still counts. A Latch is
// safe for concurrent use.
type Latch struct {
	common
	count int
}

// NewLatch returns the latch of name, which opens with n arrivals. All processes must give the same n, see [CountError]. Only
// the client of src is used: if src is a [session.Keeper] or a [session.Session], no session is created. No request is made;
// a name that cannot be one is reported by the first call ([etcdlock.ErrInvalidName]). It panics if n is not between 1 and
// 10,000, or src is nil.
func NewLatch(src session.Source, name string, n int, opts ...Option) *Latch {
	needCount("arrivals", n)
	return &Latch{newCommon(aLatch, src, name, opts), n}
}

// Arrive counts id. Each id counts once, so the call can be repeated after a lost answer. One round trip, one raft entry. With
// more than n ids the latch stays open.
//
// The error wraps [*CountError] if the latch was used with another number; [etcdlock.ErrInvalidName] if the id is empty, longer
// than 512 bytes or not UTF-8; or ctx's error. Then id may have been counted, or may yet be: call it again.
func (l *Latch) Arrive(ctx context.Context, id string) error {
	err := cmp.Or(l.ready(ctx), valid("id", id))
	if err == nil {
		err = l.arrive(ctx, id)
	}
	return l.failed("arrive", err)
}

func (l *Latch) arrive(ctx context.Context, id string) error {
	client, err := l.client(ctx)
	if err != nil {
		return err
	}
	key, arrival := l.arrival(id), clientv3.OpPut(l.arrival(id), "")
	undeclared := clientv3.Compare(clientv3.CreateRevision(l.declaration()), "=", 0)
	// The count is followed by a space and an id, and '!' is the character after the space.
	sameCount := []clientv3.Cmp{
		clientv3.Compare(clientv3.Value(l.declaration()), ">", fmt.Sprintf("%d ", l.count)),
		clientv3.Compare(clientv3.Value(l.declaration()), "<", fmt.Sprintf("%d!", l.count)),
		clientv3.Compare(clientv3.CreateRevision(key), "=", 0),
	}
	var answer *clientv3.TxnResponse
	err = session.Retry(ctx, func(ctx context.Context) (err error) {
		answer, err = client.Txn(ctx).If(undeclared).
			Then(clientv3.OpPut(l.declaration(), fmt.Sprintf("%d %s", l.count, id)), arrival).
			Else(clientv3.OpGet(l.declaration()), clientv3.OpTxn(sameCount, []clientv3.Op{arrival}, nil)).
			Commit()
		return err
	})
	if err != nil || answer.Succeeded {
		return l.explain(client, err)
	}
	return l.check(id, answer.Responses[0].GetResponseRange().Kvs[0])
}

// check returns an error if the latch was declared with another count. The id is that of an arrival, or empty.
func (l *Latch) check(id string, declaration *mvccpb.KeyValue) error {
	number, other, _ := strings.Cut(string(declaration.Value), " ")
	declared, err := strconv.Atoi(number)
	switch {
	case err != nil:
		return fmt.Errorf("coord: key %q has another value than that of a latch", declaration.Key)
	case declared != l.count:
		return &CountError{What: "arrivals", ID: id, Count: l.count, Other: other, Declared: declared}
	}
	return nil
}

// Wait waits until the latch is open, and returns nil. ctx bounds the wait. It needs no session. The error wraps [*CountError]
// if the latch is used with another number, [etcdlock.ErrLost] if the client is closed, or ctx's error. It costs one read of
// all arrivals, a watch on them, and about every 10 s a read without values. Each arrival is one event to each waiter.
func (l *Latch) Wait(ctx context.Context) error {
	err := l.ready(ctx)
	if err == nil {
		err = l.wait(ctx)
	}
	return l.failed("wait", err)
}

func (l *Latch) wait(ctx context.Context) error {
	client, err := l.client(ctx)
	if err != nil {
		return err
	}
	err = mirrorBelow(client, l.folder+"/latch/").await(ctx, func(keys tree) (bool, error) {
		declaration := keys.get(l.declaration())
		if declaration == nil {
			return false, nil
		}
		return len(keys[l.arrival("")]) >= l.count, l.check("", declaration)
	})
	return l.explain(client, err)
}

// Arrived returns the ids that have been counted, in the order in which they came: one read. It needs no session.
func (l *Latch) Arrived(ctx context.Context) (ids []string, err error) {
	if err := l.ready(ctx); err != nil {
		return nil, l.failed("arrived", err)
	}
	client, err := l.client(ctx)
	if err != nil {
		return nil, l.failed("arrived", err)
	}
	err = session.Retry(ctx, func(ctx context.Context) error {
		answer, err := client.Get(ctx, l.arrival(""), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
		if err != nil {
			return err
		}
		ids = nil
		for _, kv := range answer.Kvs {
			id, _ := url.PathUnescape(strings.TrimPrefix(string(kv.Key), l.arrival("")))
			ids = append(ids, id)
		}
		return nil
	})
	return ids, l.failed("arrived", l.explain(client, err))
}

// Reset closes the latch: it removes all arrivals, and the declared number. A call of Wait that has not seen the latch open
// goes on to wait. One round trip, one raft entry. The late request of an Arrive that has returned ctx's error may still count.
func (l *Latch) Reset(ctx context.Context) error {
	if err := l.ready(ctx); err != nil {
		return l.failed("reset", err)
	}
	client, err := l.client(ctx)
	if err != nil {
		return l.failed("reset", err)
	}
	err = session.Retry(ctx, func(ctx context.Context) error {
		_, err := client.Delete(ctx, l.folder+"/latch/", clientv3.WithPrefix())
		return err
	})
	return l.failed("reset", l.explain(client, err))
}

// declaration is the key with the number of arrivals, a space, and the id of the first.
func (l *Latch) declaration() string { return l.folder + "/latch/count" }

func (l *Latch) arrival(id string) string { return l.folder + "/latch/arrived/" + url.PathEscape(id) }
