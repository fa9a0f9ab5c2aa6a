package coord

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// Group is the set of processes that are there. Each has an id and a value, such as its address. A process is there
// as long as its session: after a crash it is gone when the TTL is over. A Group is safe for concurrent use.
type Group struct{ common }

// NewGroup returns the group of name, whose members are bound to sessions from src. No request is made; a name that
// cannot be one is reported by the first call ([etcdlock.ErrInvalidName]). A nil src panics.
func NewGroup(src session.Source, name string, opts ...Option) *Group {
	return &Group{newCommon(aGroup, src, name, opts)}
}

func (g *Group) memberships() memberships { return memberships{g.source, g.folder + "/members"} }

func (g *Group) members() string { return g.folder + "/members/" }

// Join makes the caller a member until it leaves or is lost: one round trip, one raft entry. ctx bounds the call, not the
// membership. While another member has the id, Join waits for it to leave or expire, for two TTLs and a few seconds, or
// longer if etcd holds an election meanwhile.
//
// The error wraps [ErrIDTaken] if the other one lives; [etcdlock.ErrTooLarge] for a value of more than 1 MiB;
// [etcdlock.ErrInvalidName] if the id is empty, longer than 512 bytes or not UTF-8; ctx's error; or another error of
// [etcdlock.Mutex.Lock]. A failed call leaves no member: a key that may exist is removed in the background.
func (g *Group) Join(ctx context.Context, id, value string) (*Member, error) {
	if err := cmp.Or(g.ready(ctx), valid("id", id)); err != nil {
		return nil, g.failed("join", err)
	}
	term, err := g.memberships().join(ctx, id, value)
	if err != nil {
		return nil, g.failed("join", err)
	}
	return &Member{group: g, id: id, term: term}, nil
}

// Keep is a member for as long as ctx lasts. It joins, joins again after a loss, within about a second of the next
// session, and leaves when ctx ends. Then the error wraps ctx's cause. Before that it returns only if joining fails for
// good: as Join does, or because the session, Keeper or client is closed, or a session that is not of a Keeper is lost. src
// should be a [session.Keeper].
//
// Keep does not say when it is a member. A process that may work only while it is a member uses Join, or [Shards].
func (g *Group) Keep(ctx context.Context, id, value string) error {
	err := cmp.Or(g.ready(ctx), valid("id", id))
	if err == nil {
		err = g.memberships().keep(ctx, id, value, func(ctx context.Context, _ *etcdlock.Term) error {
			<-ctx.Done()
			return nil
		})
	}
	return g.failed("keep", err)
}

// Member is the caller's own membership. It is safe for concurrent use.
type Member struct {
	group *Group
	id    string
	term  *etcdlock.Term
}

// ID returns the id given to Join.
func (m *Member) ID() string { return m.id }

// Token returns the revision at which the member joined. It rises from member to member, so also from one of an id to
// the next.
func (m *Member) Token() etcdlock.Token { return m.term.Token() }

// Done returns a channel that is closed when the membership ends: by Leave, or by a loss, before others can see the
// member gone. If the key or the lease is removed by hand, it may be closed up to a second later.
func (m *Member) Done() <-chan struct{} { return m.term.Done() }

// Err returns nil while the caller is a member as far as it can know. Afterwards it wraps [etcdlock.ErrLost], or it is
// [etcdlock.ErrClosed] or [etcdlock.ErrUnlocked]. It compares the session's deadline with the clock. No request is made.
func (m *Member) Err() error { return m.term.Err() }

// Context returns a context that ends with the membership, with Err as its cause.
func (m *Member) Context() context.Context { return m.term.Context() }

// Set replaces the value: one round trip, one raft entry. The place in the order stays. If the membership is over, the error
// is how it ended. A value of more than 1 MiB is [etcdlock.ErrTooLarge]. If ctx ends before etcd answers, the value may
// have been replaced.
func (m *Member) Set(ctx context.Context, value string) error {
	return m.group.failed("set", m.term.Proclaim(ctx, value))
}

// Leave ends the membership: one round trip. Only the first call does anything. If it was lost before, the error wraps
// [etcdlock.ErrLost]. If etcd does not answer before ctx ends, the key is removed in the background.
func (m *Member) Leave(ctx context.Context) error {
	return m.group.failed("leave", m.term.Resign(ctx))
}

// Peer is a member as others see it.
type Peer struct {
	ID    string
	Value string
	Token etcdlock.Token // rises in the order in which the members joined
}

// Members returns the members in the order in which they joined: one read for each 500 of them, all at one revision. It needs no
// session, and the caller need not be a member.
func (g *Group) Members(ctx context.Context) ([]Peer, error) {
	if err := g.ready(ctx); err != nil {
		return nil, g.failed("members", err)
	}
	var peers roster
	err := g.read(ctx, g.members(), func(keys tree, changed map[string]bool) { peers.updateAll(keys, changed, g.members()) })
	return peers, g.failed("members", err)
}

// Observe yields the members, in the order in which they joined, and then again after every change, until ctx ends or the
// loop is left. A loop that is slow skips to the latest state. It needs no session, and the caller need not be a member.
//
// Temporary failures are retried. If etcd refuses the read (permission denied), an error is yielded without members, and
// Observe retries with pauses unless the loop is left. If the client is closed, an error that wraps [etcdlock.ErrLost] is
// yielded, and the loop ends. Observe costs one read of all members, one watch, and about every 10 s a read without values.
func (g *Group) Observe(ctx context.Context) iter.Seq2[[]Peer, error] {
	err := g.ready(ctx)
	return func(yield func([]Peer, error) bool) {
		if err != nil {
			yield(nil, g.failed("observe", err))
			return
		}
		var peers roster
		first := true
		observe(ctx, &g.common, g.members(), func(keys tree, changed map[string]bool) bool {
			news := peers.updateAll(keys, changed, g.members()) || first
			first = false
			return news
		}, func(err error) bool {
			if err != nil {
				return yield(nil, err)
			}
			return yield(slices.Clone(peers), nil)
		})
	}
}
