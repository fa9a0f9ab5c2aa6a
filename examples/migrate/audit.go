package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/examples/internal/stage"
)

// audit follows what happens at the queue, in the order of etcd's revisions.
type audit struct {
	e      *stage.Etcd
	events clientv3.WatchChan
	rest   []*clientv3.Event // of the last answer

	line   map[string]int64 // create revisions of all that are in line, by key
	place  int64            // of the last turn
	kind   string           // of the last turn's worker
	turns  int
	handed map[handOver]int
}

type handOver struct{ from, to string }

// phase is what is seen while the fleet stays the same.
type phase struct {
	kinds  map[string]int // of workers
	turns  map[string]int // by worker
	waited []time.Duration
	handed map[handOver]int
	took   time.Duration
}

// newAudit has to be called before anybody is in line. It ends with ctx.
func newAudit(ctx context.Context, e *stage.Etcd) (*audit, error) {
	now, err := e.Client.Get(ctx, e.Prefix)
	if err != nil {
		return nil, err
	}
	return &audit{
		e: e, line: map[string]int64{}, handed: map[handOver]int{},
		events: e.Client.Watch(ctx, e.Prefix, clientv3.WithPrefix(), clientv3.WithRev(now.Header.Revision+1)),
	}, nil
}

// next returns the next turn and the revision of its end, or no turn if the audit is over.
func (a *audit) next(ctx context.Context) (*turn, int64, error) {
	for {
		for len(a.rest) > 0 {
			event := a.rest[0]
			a.rest = a.rest[1:]
			switch key := strings.TrimPrefix(string(event.Kv.Key), a.e.Prefix); {
			case strings.HasPrefix(key, "jobs/") && event.Type == clientv3.EventTypeDelete:
				delete(a.line, string(event.Kv.Key))
			case strings.HasPrefix(key, "jobs/"):
				a.line[string(event.Kv.Key)] = event.Kv.CreateRevision
			case key == "turn":
				t, err := a.check(event.Kv.Value)
				return t, event.Kv.ModRevision, err
			case key == "end":
				return nil, event.Kv.ModRevision, nil
			}
		}
		select {
		case answer, ok := <-a.events:
			if err := answer.Err(); err != nil || !ok {
				return nil, 0, fmt.Errorf("the audit has come to an end: %w", err)
			}
			a.rest = answer.Events
		case <-ctx.Done():
			return nil, 0, context.Cause(ctx)
		}
	}
}

// check makes sure that the worker at work was the first in line, and that the line moves on by
// create revision.
func (a *audit) check(value []byte) (*turn, error) {
	var t turn
	if err := json.Unmarshal(value, &t); err != nil {
		return nil, err
	}
	place := a.line[t.Key]
	for key, other := range a.line {
		if other < place || place == 0 {
			return nil, fmt.Errorf("%s worked at place %d while %s was at %d", t.Name, place, key, other)
		}
	}
	if place <= a.place {
		return nil, fmt.Errorf("%s worked at place %d after %d", t.Name, place, a.place)
	}
	if a.turns > 0 {
		a.handed[handOver{a.kind, t.Kind}]++
	}
	a.turns, a.place, a.kind = a.turns+1, place, t.Kind
	return &t, nil
}

// watch audits until each of the workers has had enough turns, and each kind has been handed the
// lock by the other, if both are there.
func (a *audit) watch(ctx context.Context, fleet map[string]string) (*phase, error) {
	p := &phase{kinds: map[string]int{}, turns: map[string]int{}, handed: map[handOver]int{}}
	for _, kind := range fleet {
		p.kinds[kind]++
	}
	now, err := a.e.Client.Get(ctx, a.e.Prefix)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	for !p.enough(fleet) {
		from := a.kind
		t, revision, err := a.next(ctx)
		if err != nil {
			return nil, err
		}
		if revision <= now.Header.Revision {
			continue // of the change of the fleet
		}
		p.turns[t.Name]++
		p.waited = append(p.waited, t.Waited)
		p.handed[handOver{from, t.Kind}]++
	}
	p.took = time.Since(began)
	slices.Sort(p.waited)
	return p, nil
}

func (p *phase) enough(fleet map[string]string) bool {
	for name := range fleet {
		if p.turns[name] < turns {
			return false
		}
	}
	return len(p.kinds) == 1 || p.handed[handOver{etcds, ours}] > 0 && p.handed[handOver{ours, etcds}] > 0
}

func (p *phase) print(e *stage.Etcd) {
	quantile := func(q float64) string {
		return p.waited[int(q*float64(len(p.waited)-1))].Round(100 * time.Microsecond).String()
	}
	e.Printf("%4d %8d %6d %12s %9s %8.0f   %4d %6d %6d %6d\n", p.kinds[etcds], p.kinds[ours], len(p.waited),
		quantile(0.5), quantile(0.95), float64(len(p.waited))/p.took.Seconds(),
		p.handed[handOver{etcds, etcds}], p.handed[handOver{etcds, ours}],
		p.handed[handOver{ours, etcds}], p.handed[handOver{ours, ours}])
}

// finish audits what is left, after everybody has gone.
func (a *audit) finish(ctx context.Context) error {
	if _, err := a.e.Client.Put(ctx, a.e.Prefix+"end", ""); err != nil {
		return err
	}
	for {
		t, _, err := a.next(ctx)
		switch {
		case err != nil:
			return err
		case t != nil:
			continue
		case len(a.line) > 0:
			return fmt.Errorf("everybody has gone and yet there is somebody in line: %v", a.line)
		case a.kind != ours:
			return fmt.Errorf("the last turn was one of %q", a.kind)
		}
		a.e.Printf("%d turns, never two at a time, each by the first in line by create revision, the last %d.\n"+
			"The lock was handed %d times from etcd's client to ours and %d times back.\n"+
			"Roll over one process at a time, with AtPrefix; nothing has to stop, and nothing is lost on the way.\n",
			a.turns, a.place, a.handed[handOver{etcds, ours}], a.handed[handOver{ours, etcds}])
		return nil
	}
}
