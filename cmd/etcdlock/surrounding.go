package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"os"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	holds "github.com/etcdlock/locks/internal/within"
	"github.com/etcdlock/locks/session"
)

// heldVariable has the locks that a command runs under, the innermost last.
const heldVariable = "ETCDLOCK_HELD"

// variables are what a command is told of its lock.
var variables = []string{
	"ETCDLOCK_NAME", "ETCDLOCK_LOCK_KEY", "ETCDLOCK_TOKEN", "ETCDLOCK_LEASE", "ETCDLOCK_SLOT", heldVariable,
	"ETCD_LOCK_KEY", "ETCD_LOCK_REV",
}

// surrounding is a lock that a command runs under, as it is in the environment.
type surrounding struct {
	Name   string           `json:"name"`   // as given to run or elect
	Queues []string         `json:"queues"` // in etcd; several with --also
	Token  int64            `json:"token"`
	Keys   map[string]int64 `json:"keys"` // of the hold, with their create revisions
}

func surroundingOf(h *etcdlock.Hold, name string, queues []string) surrounding {
	s := surrounding{Name: name, Queues: queues, Token: int64(h.Token()), Keys: map[string]int64{}}
	for _, g := range h.Guards() {
		s.Keys[string(g.KeyBytes())] = g.GetCompare().GetCreateRevision()
	}
	return s
}

// guards makes a transaction take effect only while the lock is held.
func (s surrounding) guards() []clientv3.Cmp {
	var all []clientv3.Cmp
	for key, revision := range s.Keys {
		all = append(all, clientv3.Compare(clientv3.CreateRevision(key), "=", revision))
	}
	return all
}

// readSurrounding returns the locks that this process runs under.
func readSurrounding() ([]surrounding, error) {
	text := os.Getenv(heldVariable)
	if text == "" {
		return nil, nil
	}
	var all []surrounding
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, mistakef("%s: %w", heldVariable, err)
	}
	for _, s := range all {
		if len(s.Keys) == 0 {
			return nil, mistakef("%s: %q has no keys, so nothing would be guarded", heldVariable, s.Name)
		}
	}
	return all, nil
}

// environment returns this process's environment and what the command is told of its lock.
func environment(h *etcdlock.Hold, lease clientv3.LeaseID, above []surrounding, this surrounding) ([]string, error) {
	held, err := json.Marshal(append(slices.Clip(above), this))
	if err != nil {
		return nil, err
	}
	ours := []string{
		"ETCDLOCK_NAME=" + this.Name,
		"ETCDLOCK_LOCK_KEY=" + h.Key(),
		fmt.Sprintf("ETCDLOCK_TOKEN=%d", h.Token()),
		fmt.Sprintf("ETCDLOCK_LEASE=%x", lease),
		heldVariable + "=" + string(held),
		"ETCD_LOCK_KEY=" + h.Key(), // as etcdctl has it
		fmt.Sprintf("ETCD_LOCK_REV=%d", h.Token()),
	}
	if slot, ok := h.Slot(); ok {
		ours = append(ours, fmt.Sprintf("ETCDLOCK_SLOT=%d", slot))
	}
	// A lock above may have set them, and programs differ in which of two they take.
	theirs := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(variables, name)
	})
	return append(theirs, ours...), nil
}

// around are the locks above, as those that a context comes from.
type around []surrounding

// Live implements [holds.Holds]. The innermost comes first.
func (a around) Live(*clientv3.Client) iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for _, s := range slices.Backward(a) {
			for key, revision := range s.Keys {
				if !yield(key, revision) {
					return
				}
			}
		}
	}
}

// underSurrounding returns ctx for a call that asks for a lock under those above, so that its ticket tells of them.
func underSurrounding(ctx context.Context, above []surrounding) context.Context {
	return context.WithValue(ctx, holds.Key{}, around(above))
}

// queues returns where the queues of names are in etcd.
func (c *connection) queues(names ...string) []string {
	var all []string
	for _, name := range names {
		if !c.prefix {
			name = c.namespace + "/" + url.PathEscape(name)
		}
		all = append(all, name)
	}
	return all
}

var errNested = errors.New("is held by a run around this one, which would wait for itself")

// refuseNested returns an error if one of the queues is that of a lock above. A queue of that name in another
// cluster is another lock, so etcd is asked whether the hold above is there.
func refuseNested(ctx context.Context, client *clientv3.Client, above []surrounding, queues []string) error {
	for _, s := range above {
		if !slices.ContainsFunc(s.Queues, func(q string) bool { return slices.Contains(queues, q) }) {
			continue
		}
		there, err := s.held(ctx, client)
		if err != nil {
			return err
		}
		if there {
			return mistakef("%q %w", s.Name, errNested)
		}
	}
	return nil
}

// held asks etcd whether the lock is held.
func (s surrounding) held(ctx context.Context, client *clientv3.Client) (there bool, err error) {
	err = session.Retry(ctx, func(ctx context.Context) error {
		answer, err := client.Txn(ctx).If(s.guards()...).Commit()
		if err == nil {
			there = answer.Succeeded
		}
		return err
	})
	return there, err
}
