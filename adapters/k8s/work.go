package k8slock

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

// Wrap returns a function for OnStartedLeading that calls fn. The term is not given up before fn has returned,
// whereas client-go alone releases its lease without waiting. fn's context ends with client-go's and with the term,
// whichever is first: at the session's deadline at the latest, also if client-go's timings are longer. Its cause
// says why. fn is not called if the term is over already.
func (l *Lock) Wrap(fn func(ctx context.Context)) func(ctx context.Context) {
	return func(ctx context.Context) {
		c, leading := l.begin(ctx)
		if c == nil {
			return
		}
		defer l.finish(c)
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(leading, func() { cancel(context.Cause(leading)) })()
		fn(ctx)
	}
}

// begin returns the candidate whose term ctx, client-go's, is of.
func (l *Lock) begin(ctx context.Context) (c *candidate, leading context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c = l.current
	// While ctx lasts, client-go has not stopped.
	if ctx.Err() != nil || c == nil || !c.believed() || c.end() != nil {
		return nil, nil
	}
	c.working++
	return c, c.leading
}

func (l *Lock) finish(c *candidate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.working--
	l.change()
}

// Term returns the term that client-go leads by, for guarded transactions. ok is false while it does not lead. Take
// it when the work begins: work of an earlier term must not write in the name of a later one.
func (l *Lock) Term() (t *etcdlock.Term, ok bool) {
	t = l.latest.Load()
	if t == nil || t.Err() != nil {
		return nil, false
	}
	return t, true
}

// Token returns the fencing token of the latest term that client-go has led by, and 0 before the first.
func (l *Lock) Token() etcdlock.Token {
	if t := l.latest.Load(); t != nil {
		return t.Token()
	}
	return 0
}

// Guard returns a comparison that makes an etcd transaction take effect only while the latest term goes on. Before
// the first term it never holds.
func (l *Lock) Guard() clientv3.Cmp {
	if t := l.latest.Load(); t != nil {
		return t.Guard()
	}
	return clientv3.Compare(clientv3.CreateRevision(l.name), "<", 0)
}
