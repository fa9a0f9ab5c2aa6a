package fairqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
)

// slotFolder is beside the queue rather than in it, so that reads of the queue do not bring
// the slots back as well. No escaped name has an exclamation mark.
const slotFolder = "!/slot/"

func (q *Queue) slotSpace() space {
	return space(strings.TrimSuffix(string(q.space), "/") + slotFolder)
}

// takeSlot gives a granted permit a number, from 0 to the semaphore's size - 1, that no other
// permit has at the same time: the lowest one that is free. A number is a queue of its own, and its
// key becomes the first of the ticket, since its revisions rise from one owner of the number to the
// next. One read and one transaction; again if another permit takes the number meanwhile, and, with
// pauses, while none is free because a lost permit is still being removed.
func (t *Ticket) takeSlot(ctx context.Context) error {
	p := t.first()
	for failures := 0; ; failures++ {
		slot, number, err := p.trySlot(ctx)
		switch {
		case err == nil:
			t.parts, t.want, t.Slot = []*part{slot, p}, 2, number
			return nil
		case !errors.Is(err, ErrBusy):
			return fmt.Errorf("slot: %w", err)
		}
		request.Sleep(ctx, p.session.Context(), request.BackOff(failures)/4)
	}
}

func (p *part) trySlot(ctx context.Context) (slot *part, number int, err error) {
	prefix := string(p.queue.slotSpace())
	sizes := p.queue.space.sizes().all()
	lists, _, err := read(ctx, p.session,
		clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly()),
		clientv3.OpGet(sizes.first, clientv3.WithRange(sizes.end), clientv3.WithKeysOnly()))
	if err != nil {
		return nil, 0, err
	}
	used := make(map[string]bool)
	for _, e := range lists[0].entries {
		number, _, _ := strings.Cut(strings.TrimPrefix(e.key, prefix), "/")
		used[number] = true
	}
	for used[strconv.Itoa(number)] {
		number++
	}
	if size := cmp.Or(p.queue.space.sizeIn(lists[1].entries), p.strategy.(*permits).size); int64(number) >= size {
		return nil, 0, ErrBusy // that of a lost permit is still being removed
	}
	q := p.queue.in(space(prefix + strconv.Itoa(number) + "/"))
	slot = q.newPart(p.session, Exclusive, q.value(ctx, p.session, false), 0)
	if err := enqueue(ctx, []*part{slot}); err != nil {
		return nil, 0, err
	}
	return slot, number, grantedOrLeave(ctx, []*part{slot})
}
