package versions

import (
	"context"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

// shared runs a test with our members and those of others, for every server.
func shared(t *testing.T, test func(t *testing.T, e *etcd, others []kind)) {
	t.Helper()
	t.Run("package and services", func(t *testing.T) {
		onEach(t, mixed, func(t *testing.T, e *etcd) { test(t, e, theirs) })
	})
	t.Run("etcdctl", func(t *testing.T) {
		onEach(t, ctl, func(t *testing.T, e *etcd) { test(t, e, commands) })
	})
}

// alternating returns a line in which each of ours stands once right before and once right
// behind each of the others.
func alternating(others []kind) []kind {
	var line []kind
	for _, our := range ours {
		for _, other := range others {
			line = append(line, our, other)
		}
	}
	return append(line, ours[0])
}

// joined has all of them join in order.
func (q *queue) joined(t *testing.T, kinds []kind) []*place {
	t.Helper()
	var line []*place
	for _, k := range kinds {
		line = append(line, q.join(t, k))
	}
	return line
}

func TestMembersOfAllKindsAreServedInOneLine(t *testing.T) {
	shared(t, func(t *testing.T, e *etcd, others []kind) {
		q := newQueue(t, e)
		line := q.joined(t, alternating(others))
		for i, p := range line {
			p.awaitTurn(t)
			for _, later := range line[i+1:] {
				later.waits(t)
			}
			p.leave(t)
		}
		require.Zero(t, count(t, q.admin, q.prefix))
	})
}

func TestTheDeathOfAnOwnerLetsTheNextInWhateverKindTheyAre(t *testing.T) {
	shared(t, func(t *testing.T, e *etcd, others []kind) {
		line := newQueue(t, e).joined(t, alternating(others))
		for i, p := range line {
			p.awaitTurn(t)
			for _, later := range line[i+1:] {
				later.waits(t)
			}
			p.die(t)
		}
	})
}

// inPairs returns a line of two others, two of ours, and so on.
func inPairs(others []kind) []kind {
	var line []kind
	for i := range ours {
		for _, camp := range [][]kind{others, ours} {
			line = append(line, camp[i%len(camp)], camp[(i+1)%len(camp)])
		}
	}
	return line
}

func TestTheDeathOfWaitersLetsNobodyInEarly(t *testing.T) {
	for title, c := range map[string]struct {
		line  func(others []kind) []kind
		first int // to die; then every second one
	}{
		"ours die":        {alternating, 2},
		"the others die":  {alternating, 1},
		"half of both do": {inPairs, 1}, // so that ours come behind one of others, and the other way round
	} {
		t.Run(title, func(t *testing.T) {
			shared(t, func(t *testing.T, e *etcd, others []kind) {
				line := newQueue(t, e).joined(t, c.line(others))
				line[0].awaitTurn(t)
				for i := c.first; i < len(line); i += 2 {
					line[i].die(t)
				}
				line[0].outlast(t, line[1:])
			})
		})
	}
}

// outlast has an owner leave, and then each of the others that are alive, while those behind
// it wait.
func (p *place) outlast(t *testing.T, others []*place) {
	t.Helper()
	for i, next := range others {
		if next.dead.Load() {
			continue
		}
		for _, later := range others[i:] {
			if !later.dead.Load() {
				later.waits(t)
			}
		}
		p.leave(t)
		next.awaitTurn(t)
		p = next
	}
	p.leave(t)
}

func TestAKilledProcessBlocksOthersOnlyUntilItsLeaseRunsOut(t *testing.T) {
	shortLock := processKind("etcdctl lock", func(e *etcd, prefix string) *exec.Cmd { return e.ctl("lock", ttlFlag(shortTTL), prefix) })
	shortChild := processKind("Mutex of another process", func(e *etcd, prefix string) *exec.Cmd { return e.child(prefix, shortTTL) })
	onEach(t, ctl, func(t *testing.T, e *etcd) {
		q := newQueue(t, e)
		line := q.joined(t, []kind{shortLock, shortChild, shortLock, ours[0]})
		for _, p := range line[:3] {
			p.awaitTurn(t)
			p.crash()
		}
		line[3].awaitTurn(t)
		line[3].leave(t)
	})
}

func TestNoTwoOfAnyKindOwnTogetherUnderContention(t *testing.T) {
	const turns = 4
	shared(t, func(t *testing.T, e *etcd, others []kind) {
		q, ctx := newQueue(t, e), within(t)
		var group errgroup.Group
		for _, k := range append(others[:len(others):len(others)], ours...) {
			var members []*place
			for range turns {
				members = append(members, &place{member: k.open(t, e, q.prefix), kind: k.name, queue: q})
			}
			group.Go(func() error {
				for i, p := range members {
					if err := p.turn(ctx, i%2 == 1); err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
		require.Zero(t, count(t, q.admin, q.prefix))
	})
}

// turn owns once, and dies of it if that is wanted.
func (p *place) turn(ctx context.Context, dies bool) error {
	if _, err := p.own(ctx); err != nil {
		return err
	}
	p.owns = true
	if !dies {
		p.queue.owners.Add(-1)
		return p.release(ctx)
	}
	kv, err := p.queue.first(ctx, clientv3.SortAscend)
	if err != nil {
		return err
	}
	p.crash()
	_, err = p.queue.admin.Revoke(ctx, clientv3.LeaseID(kv.Lease))
	return err
}
