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
//	etcdlock.election.leading          up-down counter ({term}): 1 where this process leads, 0 where it stands by
//	etcdlock.session.changes           counter ({change}), by state: live, at risk, lost, closed
//	etcdlock.session.remaining         gauge (s): how long the sessions may still be trusted, the least of them
//	etcdlock.session.remaining.lowest  gauge (s): the least of that in the last minute
//	etcdlock.session.ttl               gauge (s): TTL of the sessions, the longest of them
//	etcdlock.session.renewal.duration  histogram (s), of answered renewals
//
// Those of locks have the attributes lock.kind and lock.name. A program may have any number of names, so a name is an
// attribute only if [WithNames] lists it. All others share "other". There is no semantic convention for locks yet.
//
// # Spans
//
// A wait in line whose context has a sampled span is a span "etcdlock wait", a child of that one. It is made when the
// wait is over, and has lock.kind, lock.name and lock.token. If the wait failed it has error.type, and after a
// time-out lock.holder, lock.holder.token and lock.ahead say what was in the way. A lock that was free makes no span,
// and neither does a hold, unless [WithHoldSpans] is given. Requests to etcd that several calls share carry no span
// context.
//
// # Cost
//
// With the SDK of OpenTelemetry a hook takes about a microsecond. It does not block, and does not allocate unless it
// makes a span. docs/observability.md has a dashboard, alerts, and what to do at each.
package otellock
