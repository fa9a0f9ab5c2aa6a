package coord

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

const (
	// openings bounds how many openings are remembered for a party that learns of its own late.
	openings = 1000

	// tidyTimeout bounds the removal of what the last party would leave.
	tidyTimeout = time.Second
)

// Barrier lets a number of parties wait for each other, and then go on together, again and again. A party that crashes while
// it waits, or loses its session, counts until its lease expires. If it comes again before that, it counts twice. For a
// double barrier, at the beginning and the end of some work, call Await twice. A Barrier is safe for concurrent use.
type Barrier struct {
	common
	parties int
}

// NewBarrier returns the barrier of name for so many parties, whose places are bound to sessions from src. All must give the
// same number, see [CountError]. No request is made; a name that cannot be one is reported by the first call
// ([etcdlock.ErrInvalidName]). It panics if parties is not between 1 and 10,000, or src is nil.
func NewBarrier(src session.Source, name string, parties int, opts ...Option) *Barrier {
	needCount("parties", parties)
	return &Barrier{newCommon(aBarrier, src, name, opts), parties}
}

// Await waits until as many parties as were given to NewBarrier stand at the barrier. Then it returns nil for all of them.
// If there are more, the first to come go on, and the others wait for the next opening. generation is the same for all
// that go on together, and rises from opening to opening.
//
// The error wraps ctx's if that ends; [etcdlock.ErrLost] or [etcdlock.ErrClosed] if the session does; or [*CountError] if a
// party that waits has declared another number. After an error the party does not stand at the barrier. It may have been
// counted: if it stood there with all others at one revision of etcd, these go on.
//
// It costs a join, a read of all that stand there, a watch, a read about every 10 s, a leave, and a read. One party of each
// opening makes one transaction more. When the last party has left, no key is left in etcd, unless that party crashes
// meanwhile.
func (b *Barrier) Await(ctx context.Context) (generation int64, err error) {
	if err := b.ready(ctx); err != nil {
		return 0, b.failed("await", err)
	}
	place, err := b.line().RLock(ctx)
	if err != nil {
		return 0, b.failed("await", err)
	}
	generation, err = b.stand(ctx, place)
	ctx, cancel := request.Grace(ctx)
	defer cancel()
	if place.Unlock(ctx) == nil { // otherwise the session removes it
		b.tidy(ctx)
	}
	return generation, b.failed("await", err)
}

// stand waits with a place in line.
func (b *Barrier) stand(ctx context.Context, place *etcdlock.Hold) (generation int64, err error) {
	client, err := b.client(ctx)
	if err != nil {
		return 0, err
	}
	standing, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(place.Context(), func() { end(place.Err()) })()
	for generation == 0 && err == nil && standing.Err() == nil {
		if err = b.open(standing, client, place); err == nil {
			generation, err = b.await(standing, client, place)
		}
	}
	switch {
	case generation > 0:
		return generation, nil
	case ctx.Err() == nil && standing.Err() != nil:
		return 0, context.Cause(standing)
	case err == nil:
		return 0, request.Ended(ctx, nil)
	}
	return 0, b.explain(client, err)
}

// await waits until the place is free to go, for the time of a recheck at most. Then it returns 0.
func (b *Barrier) await(ctx context.Context, client *clientv3.Client, place *etcdlock.Hold) (generation int64, err error) {
	waiting, cancel := context.WithTimeout(ctx, request.Jitter(recheck))
	defer cancel()
	err = newMirror(client, b.opened(), b.opened()+"\x00").await(waiting, func(keys tree) (_ bool, err error) {
		generation, err = generationOf(keys.get(b.opened()), int64(place.Token()))
		return generation > 0, err
	})
	if waiting.Err() != nil && ctx.Err() == nil {
		return generation, nil
	}
	return generation, err
}

// open opens the barrier, as often as enough parties stand there. The last one to come is sure to see all others of its
// opening. So if its process does not go on from here, its place is lost, or another one's recheck opens.
func (b *Barrier) open(ctx context.Context, client *clientv3.Client, place *etcdlock.Hold) error {
	for {
		var answer *clientv3.TxnResponse
		err := session.Retry(ctx, func(ctx context.Context) (err error) {
			answer, err = client.Txn(ctx).Then(clientv3.OpGet(b.places(), clientv3.WithPrefix()), clientv3.OpGet(b.opened())).Commit()
			return err
		})
		if err != nil {
			return err
		}
		var before *mvccpb.KeyValue
		if kvs := answer.Responses[1].GetResponseRange().Kvs; len(kvs) > 0 {
			before = kvs[0]
		}
		ends, err := endsOf(before)
		if err != nil {
			return err
		}
		entries, _ := fairqueue.Parse(b.places()[:len(b.places())-1], answer.Responses[0].GetResponseRange().Kvs)
		if !slices.ContainsFunc(entries, func(e fairqueue.Entry) bool { return e.Revision == int64(place.Token()) }) {
			return nil // the session learns that the place is lost
		}
		next, err := b.next(slices.Clone(entries), ends, place)
		if err != nil || next == 0 {
			return err
		}
		// An opening before the first place concerns no party any more.
		ends = slices.DeleteFunc(ends, func(end int64) bool { return end < entries[0].Revision })
		if err := b.write(ctx, client, place, before, append(ends, next)); err != nil {
			return err
		}
	}
}

// next returns the place of the last party that goes on at the next opening, or 0 if too few stand there.
func (b *Barrier) next(entries []fairqueue.Entry, ends []int64, place *etcdlock.Hold) (int64, error) {
	last := int64(0)
	if len(ends) > 0 {
		last = ends[len(ends)-1]
	}
	if int64(place.Token()) <= last {
		return 0, nil
	}
	// Those of this number that may go on do not count any more.
	entries = slices.DeleteFunc(entries, func(e fairqueue.Entry) bool {
		return e.Foreign || e.Revision <= last && e.Owner.Label == b.label()
	})
	if first := entries[0]; first.Owner.Label != b.label() {
		declared, _ := strconv.Atoi(first.Owner.Label)
		return 0, &CountError{What: "parties", ID: place.Key(), Count: b.parties, Other: first.Key, Declared: declared}
	}
	// Those with another number get an error.
	entries = slices.DeleteFunc(entries, func(e fairqueue.Entry) bool { return e.Owner.Label != b.label() })
	if len(entries) < b.parties {
		return 0, nil
	}
	return entries[b.parties-1].Revision, nil
}

// write replaces the openings unless another party has, or the place is lost. A late attempt of a party that has left writes nothing.
func (b *Barrier) write(ctx context.Context, client *clientv3.Client, place *etcdlock.Hold, before *mvccpb.KeyValue, ends []int64) error {
	ends = ends[max(0, len(ends)-openings):]
	text, err := json.Marshal(ends)
	if err != nil {
		return err
	}
	unchanged := clientv3.Compare(clientv3.ModRevision(b.opened()), "=", before.GetModRevision())
	return session.Retry(ctx, func(ctx context.Context) error {
		_, err := client.Txn(ctx).If(unchanged, place.Guard()).Then(clientv3.OpPut(b.opened(), string(text))).Commit()
		return err
	})
}

// tidy removes the openings if nobody stands at the barrier. It is no failure if it cannot: a later party does.
func (b *Barrier) tidy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
	defer cancel()
	client, err := b.client(ctx)
	if err != nil {
		return
	}
	left, err := client.Get(ctx, b.places(), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || left.Count > 0 {
		return
	}
	// A comparison of a range holds for each of its keys, and no key of revision 0 exists.
	empty := clientv3.Compare(clientv3.CreateRevision(b.places()).WithPrefix(), "=", 0)
	_, _ = client.Txn(ctx).If(empty).Then(clientv3.OpDelete(b.openings(), clientv3.WithPrefix())).Commit()
}

// endsOf returns the last places of the openings, in order.
func endsOf(opened *mvccpb.KeyValue) (ends []int64, err error) {
	if opened == nil {
		return nil, nil
	}
	if json.Unmarshal(opened.Value, &ends) != nil || !slices.IsSorted(ends) {
		return nil, fmt.Errorf("coord: key %q has another value than that of a barrier", opened.Key)
	}
	return ends, nil
}

// generationOf returns the opening at which a place was free to go, or 0 if it is not yet.
func generationOf(opened *mvccpb.KeyValue, place int64) (int64, error) {
	ends, err := endsOf(opened)
	i, _ := slices.BinarySearch(ends, place)
	if err != nil || i == len(ends) {
		return 0, err
	}
	return ends[i], nil
}

// places is where the places of the parties are, with a slash at its end.
func (b *Barrier) places() string { return b.folder + "/barrier/line/" }

// openings is where the openings are, with a slash at its end.
func (b *Barrier) openings() string { return b.folder + "/barrier/open/" }

// opened is the key with the openings of so many parties: for each the place of the last party that went on, as JSON. A party
// that has declared another number does not go on with them.
func (b *Barrier) opened() string { return b.openings() + b.label() }

func (b *Barrier) label() string { return strconv.Itoa(b.parties) }

func (b *Barrier) line() *etcdlock.RWMutex {
	return etcdlock.NewRWMutex(b.source, "line", etcdlock.WithNamespace(b.folder+"/barrier"), etcdlock.WithLabel(b.label()))
}
