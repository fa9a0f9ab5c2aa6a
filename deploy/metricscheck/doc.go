// Package metricscheck is a test suite for the dashboard in deploy/grafana and the alerts in deploy/prometheus. A
// real Prometheus scrapes a fleet with the metrics of adapters/prometheus, adapters/otel, etcdlock exporter and etcd.
//
//   - Every expression of the dashboard has series with the labels that its legend names.
//   - Each alert fires in its scenario and in no other. The scenarios are real: a black hole, a removed key, renewals that
//     are overdue, candidates of two clusters. Prometheus gets the rules with a minute shortened to two seconds, and
//     promtool checks their real timing.
//   - The metrics of both adapters are the same.
//
// Without Debian's prometheus these tests are skipped. More on demand:
//
//	go test -run TestDashboardIsDrawn -draw ../../docs/dashboard.svg   # the picture in docs/observability.md, 2 minutes
//	go test -run TestCostOfHooks -costs                                # what hooks cost, a minute on a quiet machine
//
// It is a module of its own, since it needs both adapters.
package metricscheck
