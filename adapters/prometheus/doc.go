// Package promlock exports Prometheus metrics of locks, elections and their sessions.
//
//	metrics := promlock.New(promlock.WithNames("orders", "billing"))
//	prometheus.MustRegister(metrics)
//	sessions := session.Keep(client, metrics.SessionOptions()...)
//	metrics.Watch(sessions)
//	orders := etcdlock.NewMutex(sessions, "orders", etcdlock.WithHooks(metrics.Hooks()))
//
// # Metrics
//
//	etcdlock_wait_duration_seconds             histogram: from the call of Lock to its return; error_type is empty on success
//	etcdlock_hold_duration_seconds             histogram: from Lock to Unlock or loss
//	etcdlock_waiting                           gauge: calls that wait in line
//	etcdlock_held                              gauge: holds
//	etcdlock_lost_total                        counter: holds that ended otherwise than by Unlock
//	etcdlock_election_leading                  gauge: terms, 1 where this process leads, 0 where it stands by
//	etcdlock_session_changes_total             counter, by state: live, at risk, lost, closed
//	etcdlock_session_remaining_seconds         gauge: how long the sessions may still be trusted, the least of them
//	etcdlock_session_remaining_lowest_seconds  gauge: the least of that in the last minute
//	etcdlock_session_ttl_seconds               gauge: TTL of the sessions, the longest of them
//	etcdlock_session_renewal_duration_seconds  histogram, of answered renewals
//	leader_election_master_status              gauge: see [WithLeaderElectionStatus]
//
// Those of locks have the labels lock_kind (mutex, read, write, upgradeable, permit, multi, election) and lock_name.
// A program may have any number of names, so a name is a label only if [WithNames] lists it. All others share
// "other". error_type is one of busy, timeout, cancelled, lost, closed, refused and other.
//
// The OpenTelemetry module has the same metrics, under the names that its Prometheus exporter turns into these.
//
// # Cost
//
// A hook takes well under a microsecond, does not allocate and does not block. docs/observability.md has a dashboard,
// alerts, and what to do at each.
package promlock
