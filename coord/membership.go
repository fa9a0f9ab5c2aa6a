package coord

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/internal/request"
	"github.com/etcdlock/locks/session"
)

// memberships are those below a folder in etcd. Each id has a queue of its own, in which the first is the member. So a
// join costs the same however many members there are, and the next of the same id is in line.
type memberships struct {
	source session.Source
	folder string
}

func (m memberships) election(id string) *etcdlock.Election {
	return etcdlock.NewElection(m.source, id, etcdlock.WithNamespace(m.folder))
}

// join waits until id is free.
func (m memberships) join(ctx context.Context, id, value string) (*etcdlock.Term, error) {
	limited, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer m.limit(limited, id, end)()
	term, err := m.election(id).Campaign(limited, value)
	if err != nil {
		return nil, orCause(limited, ctx, err)
	}
	return term, nil
}

// keep joins, and again after each loss, until ctx ends or joined returns an error. Otherwise joined returns when its
// context ends. It may resign.
func (m memberships) keep(ctx context.Context, id, value string, joined func(context.Context, *etcdlock.Term) error) error {
	limited, end := context.WithCancelCause(ctx)
	defer end(nil)
	stop := m.limit(limited, id, end)
	defer func() { stop() }()
	err := m.election(id).Run(limited, value, func(ctx context.Context, term *etcdlock.Term) error {
		stop()
		defer func() { stop = m.limit(limited, id, end) }()
		return joined(ctx, term)
	})
	return orCause(limited, ctx, err)
}

// orCause returns the cause of limited's end, if that came before the end of ctx, and err otherwise.
func orCause(limited, ctx context.Context, err error) error {
	if ctx.Err() == nil && limited.Err() != nil {
		return context.Cause(limited)
	}
	return err
}

// limit ends a wait for an id if another member has it for longer than a crashed one could. stop ends that, and is called
// when the id is the caller's.
func (m memberships) limit(ctx context.Context, id string, end context.CancelCauseFunc) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := m.taken(ctx, id); err != nil && ctx.Err() == nil {
			end(err)
		}
	}()
	return func() {
		cancel()
		<-over
	}
}

// taken returns an error when a member with that id has lived for two TTLs, or nil when ctx ends. An election in etcd lets the
// lease of one that has crashed begin anew, so there must have been none.
func (m memberships) taken(ctx context.Context, id string) error {
	var seen etcdlock.Token
	var term uint64 // of etcd's leader
	for pause := time.Second; request.Sleep(ctx, ctx, pause); {
		pause = time.Second
		s, err := m.source.Session(ctx)
		if err != nil {
			continue
		}
		leader, err := m.election(id).Leader(ctx)
		if err != nil {
			continue
		}
		var answer *clientv3.GetResponse
		err = session.Retry(ctx, func(ctx context.Context) (err error) {
			answer, err = s.Client().Get(ctx, leader.Key, clientv3.WithCountOnly())
			return err
		})
		if err != nil {
			continue
		}
		if leader.Token == seen && answer.Header.RaftTerm == term {
			return fmt.Errorf("%w: %q is that of %s, token %d, for more than two TTLs", ErrIDTaken, brief(id), leader.Key, leader.Token)
		}
		pause, seen, term = 2*s.TTL()+time.Second, leader.Token, answer.Header.RaftTerm
	}
	return nil
}
