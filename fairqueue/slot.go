package fairqueue

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/internal/request"
)

// slotFolder is beside the queue rather than in it, so that reads of the queue do not bring
// the slots back as well. No escaped name has an exclamation mark.
const slotFolder = "!/slot/"

// TakeSlot gives a granted ticket for one permit a number, from 0 to the semaphore's size - 1,
// that no other has at the same time: the lowest one free. The number is a place in a
// queue of its own; both tickets together are the group, of which the slot is the first, since
// its revisions rise from one owner of the number to the next. One read and one transaction;
// again if somebody else takes the number meanwhile, and, with pauses, while none is free because
// one who has lost its permit is still being removed. On an error t is given up.
func (t *Ticket) TakeSlot(ctx context.Context) (both *Group, number int, err error) {
	for failures := 0; ; failures++ {
		both, number, err = t.trySlot(ctx)
		switch {
		case err == nil:
			return both, number, nil
		case !errors.Is(err, ErrBusy):
			t.abandon()
			return nil, 0, t.failed(denied(t.session, err, t.queue.slots()))
		}
		timer := time.NewTimer(request.Jitter(min(firstPause<<min(failures, 10), longPause) / 4))
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-t.session.Done():
		}
		timer.Stop()
	}
}

func (q *Queue) slots() space { return space(strings.TrimSuffix(string(q.space), "/") + slotFolder) }

func (t *Ticket) trySlot(ctx context.Context) (*Group, int, error) {
	prefix := string(t.queue.slots())
	sizes := t.queue.space.sizes().all()
	lists, _, err := read(ctx, t.session,
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
	number := 0
	for used[strconv.Itoa(number)] {
		number++
	}
	if size := t.queue.space.sizeIn(lists[1].entries, t.permit.size); int64(number) >= size {
		return nil, 0, ErrBusy // somebody's who has left it is still being removed
	}
	places := []Place{{t.queue.in(space(prefix + strconv.Itoa(number) + "/")), Exclusive}}
	tickets, err := takeFree(ctx, t.session, places, []int{0}, true, joinOptions{})
	if err != nil {
		return nil, 0, err
	}
	return &Group{tickets: append(tickets, t), want: 2}, number, nil
}
