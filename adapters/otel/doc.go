// Package otellock makes OpenTelemetry metrics and spans of locks, elections and their sessions. It needs the API only.
//
//	instruments, err := otellock.New(otellock.WithNames("orders", "billing"))
//	...
//	sessions := session.Keep(client, instruments.SessionOptions()...)
//	instruments.Watch(sessions)
//	orders := etcdlock.NewMutex(sessions, "orders", etcdlock.WithHooks(instruments.Hooks()))
//
// # Metrics
//
//	etcdlock.wait.duration             histogram (s): from the call of Lock to its return; has error.type unless it succeeded
//	etcdlock.hold.duration             histogram (s): from Lock to Unlock or loss
//	etcdlock.waiting                   up-down counter ({call}): calls that wait in line
//	etcdlock.held                      up-down counter ({hold})
//	etcdlock.lost                      counter ({hold}): holds that ended otherwise than by Unlock
//	etcdlock.election.leading          up-down counter ({term}): 1 where this process leads
//	etcdlock.session.changes           counter ({change}), by state
//	etcdlock.session.remaining         gauge (s): how long the sessions' leases may still be trusted, the least of them
//	etcdlock.session.renewal.duration  histogram (s), of answered renewals
//
// Those of locks have the attributes lock.kind and lock.name. Names of locks can be without number, so a name is an attribute
// only if [WithNames] lists it; all others share "other". There is no semantic convention for locks yet.
//
// # Spans
//
// A wait in line is a span "etcdlock wait", a child of the span of the context given to Lock. It is made when the wait is
// over. A hold is no span: a term lasts days. Requests to etcd that go out together carry no span context.
package otellock
