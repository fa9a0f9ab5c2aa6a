package fairqueue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// longQueue is how many tickets make a look, which reads all of them, dearer than a put.
const longQueue = 512

// enough is for how many waiters of a session it is worth it to read the whole queue for all of
// them, rather than two tickets for each.
const enough = 4

const (
	announceLimit = 5 * time.Second // for a put that nobody waits for
	sharedLimit   = 3 * time.Second // for an answer without which each asks
)

// ownerMark begins the value of an exclusive ticket that has owned in a long queue: about how many
// keys there were in it, and the ticket's revision, since a value may be copied.
const ownerMark = `{"mark":"owner %d at %d",`

// announce lets the successor know that nothing is ahead of t, for when t goes: then it need not
// look at the whole queue. Nobody waits for that, and if it fails the successor looks.
func (t *Ticket) announce() {
	if t.mode != Exclusive || t.length < longQueue {
		return
	}
	value := fmt.Sprintf(ownerMark, t.length, t.me.revision) + strings.TrimPrefix(t.value, "{")
	t.session.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, announceLimit)
		defer cancel()
		_ = t.session.Call(ctx, func(ctx context.Context) error {
			// Only on the value that it was created with: Share and Linger say more.
			_, err := t.session.Client().Txn(ctx).
				If(t.Guard(), clientv3.Compare(clientv3.Version(t.me.key), "=", 1)).
				Then(clientv3.OpPut(t.me.key, value, clientv3.WithLease(t.session.Lease()))).Commit()
			return err
		})
	})
}

// announced returns the length in the mark of an owner that e tells the end of, or 0. The name
// has to be one of ours: other values are for others to choose.
func (s space) announced(owner entry, e *clientv3.Event) (length int64) {
	_, _, ours := s.parts(owner.key)
	if !ours || owner.key[len(s)] != byte(Exclusive) || e.PrevKv == nil || e.PrevKv.CreateRevision != owner.revision {
		return 0
	}
	var at int64
	if _, err := fmt.Sscanf(string(e.PrevKv.Value), ownerMark, &length, &at); err != nil || at != owner.revision {
		return 0
	}
	return length
}

// succeed is look for one whose predecessor has owned: since nothing was ahead of that, only
// whether its own ticket is there is left to ask.
func (t *Ticket) succeed(ctx context.Context, n news) error {
	there, at, err := t.present(ctx, t.me, n.revision)
	switch {
	case err != nil:
		return err
	case at < n.revision:
		return t.look(ctx, n.revision)
	}
	t.seen, t.length = at, n.announced-1
	if t.verdict = gone; there {
		t.verdict = granted
	}
	return nil
}

// firstLook is look for a ticket whose join could not tell what is ahead of it. When many of one
// session ask that at the same time, they share the answer.
func (t *Ticket) firstLook(ctx context.Context) error {
	own := func() error { return t.look(ctx, t.me.revision) }
	if t.mode == Shared || t.mode == permit { // whose answers have values, or are different ones
		return t.session.InTurn(ctx, own)
	}
	a, err := session.Gather(ctx, t.session, string(t.queue.space), func(ctx context.Context, callers int) (answer, error) {
		ctx, cancel := context.WithTimeout(ctx, sharedLimit)
		defer cancel()
		switch {
		case callers >= enough:
			return t.queue.everybody(ctx, t.session)
		case callers > 1:
			return answer{}, nil // that tells nobody anything
		}
		a, err := t.ask(ctx, 1, true)
		slices.Reverse(a.entries)
		return a, err
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		t.learn(a.near(t.me, joinLimit), t.me.revision)
		if t.verdict != askFurther && t.verdict != askAgain {
			return nil
		}
	}
	// Such as one that is too large for this client.
	return t.session.InTurn(ctx, own)
}

// everybody reads the whole queue, as of now, in order.
func (q *Queue) everybody(ctx context.Context, s *session.Session) (answer, error) {
	all := q.space.all()
	lists, revision, err := read(ctx, s, clientv3.OpGet(all.first, clientv3.WithRange(all.end), clientv3.WithKeysOnly()))
	if err != nil {
		return answer{}, err
	}
	a := answerOf(lists, revision)
	slices.SortFunc(a.entries, func(a, b entry) int { return cmp.Compare(a.revision, b.revision) })
	return a, nil
}

// near is what matters to me of an answer whose entries are in order: up to limit of those before
// me, if there are more. It leaves out what came after me.
func (a answer) near(me entry, limit int) answer {
	end, _ := slices.BinarySearchFunc(a.entries, me.revision+1, func(e entry, revision int64) int { return cmp.Compare(e.revision, revision) })
	first := max(end-1-limit, 0)
	if first > 0 {
		a.from = a.entries[first].revision
	}
	a.entries = a.entries[first:end]
	return a
}
