package fairqueue

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

// epochFolder is where the keys of sessions' epochs are. No escaped name has an exclamation mark.
const epochFolder = "!/epoch/"

// epochFolders are the folders that a queue's epochs may be in, the best one first. One key beside the queue serves
// all queues there. A user that may use this queue only can write one below it, where other programs would take it for
// a ticket.
func epochFolders(prefix string, shared bool) []string {
	beside := prefix[:strings.LastIndex(prefix, "/")+1] + epochFolder
	if shared {
		return []string{beside}
	}
	return []string{beside, prefix + "/" + epochFolder}
}

// epochFor returns the epoch in which s creates tickets of the queue.
func (q *Queue) epochFor(s *session.Session) *session.Epoch {
	keys := make([]string, len(q.epochs))
	for i, folder := range q.epochs {
		keys[i] = folder + strconv.FormatInt(int64(s.Lease()), 16)
	}
	return s.Epoch(keys...)
}

// epochs are those of several tickets, each once, as they were before a transaction.
type epochs struct {
	all    []*session.Epoch
	before []int64
}

func epochsOf(tickets []*Ticket) (e epochs) {
	for _, t := range tickets {
		if t.epoch = t.queue.epochFor(t.session); t.epoch.Checked() && !slices.Contains(e.all, t.epoch) {
			e.all, e.before = append(e.all, t.epoch), append(e.before, t.epoch.Now())
		}
	}
	return e
}

func (e epochs) reads() []clientv3.Op {
	reads := make([]clientv3.Op, len(e.all))
	for i, epoch := range e.all {
		reads[i] = epoch.Read()
	}
	return reads
}

// moved reports whether a transaction may have been refused because of an epoch. The answers are those to reads.
func (e epochs) moved(ctx context.Context, answers []*etcdserverpb.ResponseOp) (moved bool, err error) {
	for i, epoch := range e.all {
		one, err := epoch.Moved(ctx, e.before[i], answers[i].GetResponseRange())
		if err != nil {
			return false, err
		}
		moved = moved || one
	}
	return moved, nil
}

// deny reports whether one of the epochs is why permission was denied.
func (e epochs) deny(ctx context.Context) (deny bool) {
	for _, epoch := range e.all {
		deny = epoch.Denies(ctx) || deny
	}
	return deny
}
