package fairqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/keys"
	"github.com/etcdlock/locks/internal/within"
)

// An upgradeable ticket is an exclusive one that has the mark of an owner that shares (invariant 10) from the beginning. So
// shared tickets pass over it, and every other one waits for it. It waits for all but shared ones itself, whatever their
// marks. Tickets of other programs, and of versions that know of marks but not of upgrades, treat it in the same way.
//
// An upgrade takes the mark away. The revision at which it does decides: no shared ticket may own then, and none comes to
// own as long as the mark is missing. Shared tickets ahead of the first one that blocks them, the barrier, own or are about
// to, since all they may see is that nothing is in their way. Those behind the barrier do not own, and have not looked at a
// revision at which they did: it was there before them. So the upgrade waits until a look shows no shared ticket ahead of
// the barrier, and removes the mark on condition that the barrier is still there. None can be inserted ahead of it meanwhile
// (invariant 2). A barrier has no mark, and gets none: only an owner is marked later.
//
// A writer that waits is a barrier. As there may be none, the upgrade joins as one, at the end of the queue. Shared tickets
// that come later wait for it. Where there is no shared ticket at all, no barrier is needed, and one transaction is enough.
//
//   - u, x, s, where s came before the upgrade: x is the barrier, and s is not waited for. If x gives up before the mark is
//     removed, s owns, and the condition fails. If it gives up later, s waits for u.
//   - s before the upgrade, but it has not looked yet: it is ahead of the barrier, and waited for. No look denies it the
//     grant, so it never waits for u in its turn.
//   - u, u2, s: u2 waits, and s owns, before an upgrade. u2 is delayed by no reader, and would not be served earlier if s
//     waited.
//   - The context ends: the barrier is given up as any ticket is, and those behind it wake. If an answer was lost, the mark may
//     be missing, or an attempt may remove it later. So the session writes it again, in the background, until etcd answers.
//     After that write no earlier attempt has an effect. Upgrade and Share take their turns after it.
//   - A reply is lost: the next attempt finds the value that it was to write, later than the one that it knows.
//   - Share while an earlier attempt is in doubt, or the other way round: each is on condition of the last write of the key.
//   - The session is lost: the ticket and the barrier have one lease.
//   - Tokens: no other ticket owns alone while u is there. So the token of u is above all that did before the upgrade, and
//     below all that will.

// markedUpgrade says that a ticket is the barrier of an upgrade.
const markedUpgrade = "upgrade"

// errNoBarrier does not wrap ErrGone: the ticket itself is there.
var errNoBarrier = errors.New("etcdlock: the place in line of the upgrade was removed")

// Upgrade waits until no shared ticket owns together with t, an [Upgradeable] ticket or an [Exclusive] one after
// Share, which must have been granted. Then t owns alone, until Share is called. Shared tickets that join after the
// call wait. Tickets that wait already go on to wait. If t owns alone already, it does nothing. Otherwise it makes
// one transaction if there is no shared ticket. If there are some, it makes two and a read, and a watch and a read
// each time that it waits for one.
//
// If it returns an error, t still shares, or is lost. If the error wraps ctx's, later shared tickets may wait until etcd has answered in
// the background. It wraps [ErrGone] if t is gone. Calls of Upgrade and Share must not overlap. Tickets of other modes, or of
// several keys, panic.
func (t *Ticket) Upgrade(ctx context.Context) error {
	needContext(ctx)
	p := t.exclusive()
	if !p.shares.Load() {
		return nil
	}
	err := p.upgrade(ctx)
	if err != nil {
		p.key.PutBack(markedValue(p.key.Value)) // an attempt to remove it may have been applied, or may yet be
		return t.failed(ctx, err)
	}
	p.shares.Store(false)
	return t.failed(ctx, t.Session().Err()) // it may have been lost since the answer
}

func (p *part) upgrade(ctx context.Context) error {
	value := unmarkedValue(p.key.Value)
	done, _, err := p.key.Replace(ctx, value, []clientv3.Cmp{p.queue.space.shared().vacant()})
	if done || err != nil {
		return err
	}
	own, err := p.joinBarrier(ctx)
	if err != nil {
		return err
	}
	defer keys.Keys{own.key}.Abandon() // unless it is removed together with the mark
	for minRevision := own.me.revision; ; {
		v, nearest, at, err := p.lookForReaders(ctx, own.me, minRevision)
		if err != nil {
			return err
		}
		if v == blocked {
			up, err := p.until(ctx, untilDeleted(nearest, p.present(nearest), p.present(p.me, own.me, nearest)), at)
			if err != nil {
				return err
			}
			minRevision = up.revision
			continue
		}
		conditions := []clientv3.Cmp{own.key.Guard(), keys.CreatedAt(nearest.key, nearest.revision)}
		done, at, err := p.key.Replace(ctx, value, conditions, clientv3.OpDelete(own.key.Name))
		if done && at > 0 {
			own.key.Removed()
		}
		if done || err != nil {
			return err
		}
		minRevision = at
	}
}

// joinBarrier puts an exclusive ticket at the end of the queue. Its value says what waits for it.
func (p *part) joinBarrier(ctx context.Context) (*part, error) {
	o := p.queue.owner
	o.Mark = markedUpgrade
	o.Within = fmt.Sprintf("%d %s\n%s", p.me.revision, p.me.key, within.Live(ctx, p.session.Client()))
	own := p.queue.newPart(p.session, Exclusive, o.valueAt(time.Now()), 0)
	parts := []*part{own}
	keysOf(parts).Claim()
	_, _, err := create(ctx, parts, nil)
	if errors.Is(err, ErrGone) {
		err = errNoBarrier
	}
	return own, err
}

// lookForReaders reads the beginning of the queue, at minRevision or later. The verdict is that of decideUpgrade.
func (p *part) lookForReaders(ctx context.Context, own entry, minRevision int64) (v verdict, nearest entry, at int64, err error) {
	for _, limit := range []int64{joinLimit, 0} {
		var lists []list
		at, err = p.asOf(minRevision, func(local bool) (revision int64, err error) {
			options := Shared.readOptions(local) // with marks
			lists, revision, err = read(ctx, p.session, clientv3.OpGet(p.me.key, options...), clientv3.OpGet(own.key, options...),
				p.queue.space.all().get(append(options, clientv3.WithLimit(limit),
					clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))...))
			return revision, err
		})
		switch {
		case err != nil:
			return 0, entry{}, 0, err
		case !slices.ContainsFunc(lists[0].entries, p.me.is):
			return 0, entry{}, 0, ErrGone
		case !lists[1].contains(own):
			return 0, entry{}, 0, errNoBarrier
		}
		if v, nearest = p.queue.space.decideUpgrade(lists[2].entries); v != askFurther {
			return v, nearest, at, nil
		}
	}
	panic("fairqueue: a queue without the barrier that is in it")
}

// decideUpgrade returns what the beginning of a queue, in order, means for an upgrade: it is granted if no shared ticket is
// ahead of the barrier, which comes with it, and otherwise blocked by the last one.
func (s space) decideUpgrade(queue []entry) (verdict, entry) {
	var reader entry
	for _, e := range queue {
		switch mode, ok := s.mode(e.key); {
		case s.blocks(e, Shared):
			if reader.revision == 0 {
				return granted, e
			}
			return blocked, reader
		case ok && mode == Shared:
			reader = entry{key: e.key, revision: e.revision}
		}
	}
	if reader.revision > 0 {
		return blocked, reader
	}
	return askFurther, entry{}
}
