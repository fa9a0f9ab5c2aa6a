package metricscheck

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// stage is where a scenario plays. Its job is its name.
type stage struct {
	cluster *embedtest.Cluster
	fleet   *fleet
	binary  string // of the tool
}

// scenario is something that happens to a job, and the alerts that it should lead to.
type scenario struct {
	name   string
	alerts []string
	// enter adds instances, and returns what happens to them when Prometheus runs.
	enter func(t *testing.T, s *stage, job string) func(t *testing.T, p *server)
}

var scenarios = []scenario{
	{"calm", nil, calm},
	{"black-hole", []string{"EtcdlockHoldLost", "EtcdlockTrustLow"}, blackHole},
	{"removed", []string{"EtcdlockHoldLost"}, removed},
	{"overdue", []string{"EtcdlockSessionAtRisk"}, overdue},
	{"nearly-lost", []string{"EtcdlockTrustLow"}, nearlyLost},
	{"slow", []string{"EtcdlockWaitSlow"}, slow},
	{"stuck", []string{"EtcdlockQueueStuck"}, stuck},
	{"no-leader", []string{"EtcdlockNoLeader"}, noLeader},
	{"two-clusters", []string{"EtcdlockTwoLeaders"}, twoLeaders},
	{"blind", []string{"EtcdlockExporterBlind"}, blind},
}

// calm is a fleet of both adapters that works. It hands its election over once.
func calm(t *testing.T, s *stage, job string) func(*testing.T, *server) {
	one, two := s.fleet.add(t, s.cluster, job, byPrometheus), s.fleet.add(t, s.cluster, job, byOTel)
	s.fleet.export(t, s.binary, s.cluster, job+"-exporter", "--name", "orders", "--name", "leader")
	s.fleet.serve(t, "etcd", promhttp.Handler()) // the members run in this process
	first, resign := context.WithCancel(t.Context())
	inBackground(t,
		func(ctx context.Context) { one.work(ctx, "orders", 5*time.Millisecond) },
		func(ctx context.Context) { two.work(ctx, "orders", 5*time.Millisecond) },
		func(ctx context.Context) { two.try(ctx, "orders", 20*time.Millisecond) },
		func(ctx context.Context) { one.stand(first, "one") },
		func(ctx context.Context) { two.stand(ctx, "two") },
	)
	return func(t *testing.T, p *server) {
		p.sees(t, fmt.Sprintf(`sum(etcdlock_election_leading{job=%q}) == 1`, job))
		resign()
		time.Sleep(10 * minute) // nothing happens, which no signal tells
	}
}

// blackHole loses a hold since etcd does not answer any more.
func blackHole(t *testing.T, s *stage, job string) func(*testing.T, *server) {
	i := s.fleet.add(t, s.cluster, job, byPrometheus, session.WithTTL(2*time.Second))
	return func(t *testing.T, p *server) {
		h, err := i.mutex("orders/" + job).Lock(within(t))
		require.NoError(t, err)
		p.sees(t, fmt.Sprintf(`etcdlock_held{job=%q} == 1`, job))
		i.link.Blackhole()
		defer i.link.Heal()
		<-h.Done()
		p.sees(t, fmt.Sprintf(`etcdlock_lost_total{job=%q} == 1`, job))
	}
}

// removed loses a hold since somebody has removed its key.
func removed(t *testing.T, s *stage, job string) func(*testing.T, *server) {
	i := s.fleet.add(t, s.cluster, job, byOTel)
	return func(t *testing.T, p *server) {
		h, err := i.mutex("orders/" + job).Lock(within(t))
		require.NoError(t, err)
		p.sees(t, fmt.Sprintf(`etcdlock_held{job=%q} == 1`, job))
		require.NoError(t, etcdlock.ForceRelease(within(t), i.client, h.Key(), h.Token()))
		<-h.Done()
		p.sees(t, fmt.Sprintf(`etcdlock_lost_total{job=%q} == 1`, job))
	}
}

// overdue has three renewals answered late, none so late that the lease is nearly lost.
func overdue(t *testing.T, s *stage, job string) func(*testing.T, *server) {
	i := s.fleet.add(t, s.cluster, job, byOTel, session.WithTTL(9*time.Second), session.WithMargin(200*time.Millisecond))
	return func(t *testing.T, p *server) {
		session, err := i.keeper.Session(within(t))
		require.NoError(t, err)
		p.sees(t, fmt.Sprintf(`etcdlock_session_changes_total{job=%q, state="at risk"} == 0`, job))
		for n := range 3 {
			i.link.Blackhole() // not seen through Prometheus, which may be late
			eventually(t, "an overdue renewal", func() bool { return i.changes(t, "at risk") == n+1 })
			i.link.Heal()
			eventually(t, "an answer", func() bool { return i.changes(t, "live") == n+1 })
		}
		require.NoError(t, session.Err())
	}
}

// nearlyLost has one renewal answered so late that hardly anything was left.
func nearlyLost(t *testing.T, s *stage, job string) func(*testing.T, *server) {
	i := s.fleet.add(t, s.cluster, job, byPrometheus, session.WithTTL(15*time.Second), session.WithMargin(200*time.Millisecond))
	return func(t *testing.T, p *server) {
		session, err := i.keeper.Session(within(t))
		require.NoError(t, err)
		p.sees(t, fmt.Sprintf(`etcdlock_session_ttl_seconds{job=%q} == 15`, job))
		i.link.Blackhole()
		eventually(t, "little trust", func() bool { return time.Until(session.Deadline()) < session.TTL()/10 })
		i.link.Heal()
		eventually(t, "a renewal", func() bool { return time.Until(session.Deadline()) > session.TTL()/2 })
		require.NoError(t, session.Err())
	}
}

// slow has waits of about two seconds.
func slow(t *testing.T, s *stage, job string) func(*testing.T, *server) {
	i := s.fleet.add(t, s.cluster, job, byPrometheus)
	return func(t *testing.T, _ *server) {
		for range 2 {
			inBackground(t, func(ctx context.Context) { i.work(ctx, "orders/"+job, 2*time.Second) })
		}
	}
}

// stuck has calls that wait for a holder that does not let go.
func stuck(t *testing.T, s *stage, job string) func(*testing.T, *server) {
	i := s.fleet.add(t, s.cluster, job, byOTel)
	return func(t *testing.T, _ *server) {
		_, err := i.mutex("orders/" + job).Lock(within(t))
		require.NoError(t, err)
		inBackground(t, func(ctx context.Context) { i.work(ctx, "orders/"+job, 0) })
	}
}

// noLeader has candidates behind a key of another program.
func noLeader(t *testing.T, s *stage, job string) func(*testing.T, *server) {
	cluster := embedtest.Start(t)
	one, two := s.fleet.add(t, cluster, job, byPrometheus), s.fleet.add(t, cluster, job, byOTel)
	_, err := cluster.Client(t).Put(within(t), "etcdlock/leader/1f", "another program's")
	require.NoError(t, err)
	inBackground(t, func(ctx context.Context) { one.stand(ctx, "one") }, func(ctx context.Context) { two.stand(ctx, "two") })
	return func(t *testing.T, p *server) {
		p.sees(t, fmt.Sprintf(`sum(etcdlock_waiting{job=%q, lock_kind="election"}) == 2`, job))
	}
}

// twoLeaders has instances that use different clusters by mistake.
func twoLeaders(t *testing.T, s *stage, job string) func(*testing.T, *server) {
	one, two := s.fleet.add(t, embedtest.Start(t), job, byPrometheus), s.fleet.add(t, embedtest.Start(t), job, byOTel)
	inBackground(t, func(ctx context.Context) { one.stand(ctx, "one") }, func(ctx context.Context) { two.stand(ctx, "two") })
	return func(t *testing.T, p *server) {
		p.sees(t, fmt.Sprintf(`sum(etcdlock_election_leading{job=%q}) == 2`, job))
	}
}

// blind has an exporter whose etcd is away.
func blind(t *testing.T, s *stage, job string) func(*testing.T, *server) {
	cluster := embedtest.Start(t)
	s.fleet.export(t, s.binary, cluster, job)
	return func(t *testing.T, p *server) {
		p.sees(t, fmt.Sprintf(`etcdlock_exporter_up{job=%q} == 1`, job))
		cluster.Members()[0].Stop()
		p.sees(t, fmt.Sprintf(`etcdlock_exporter_up{job=%q} == 0`, job))
	}
}

func TestAlertsFireInTheirScenariosAndNoOthers(t *testing.T) {
	need(t, "prometheus")
	s := &stage{cluster: embedtest.Start(t, embedtest.WithFsync()), fleet: newFleet(), binary: tool(t)}
	happen := make([]func(*testing.T, *server), len(scenarios))
	for i, sc := range scenarios {
		happen[i] = sc.enter(t, s, sc.name)
	}
	p := newServer(t, 250*time.Millisecond, s.fleet.targets, shortened(t))
	t.Run("scenarios", func(t *testing.T) {
		for i, sc := range scenarios {
			t.Run(sc.name, func(t *testing.T) {
				t.Parallel()
				happen[i](t, p)
				eventually(t, "alerts", func() bool { return len(p.fired(t, sc.name)) >= len(sc.alerts) })
			})
		}
	})
	for _, sc := range scenarios {
		require.ElementsMatch(t, sc.alerts, p.fired(t, sc.name), sc.name)
	}
	var fired []string
	for _, sc := range scenarios {
		fired = append(fired, sc.alerts...)
	}
	for _, r := range p.query(t, `count by (alertname, job) (max_over_time(ALERTS{alertstate="firing"}[1h]))`) {
		require.Contains(t, fired, r.Metric["alertname"], "an alert of no scenario: %v", r.Metric)
	}
	checkDashboard(t, p)
}

var (
	alertName = regexp.MustCompile(`alert: (\w+)`)
	anchor    = regexp.MustCompile(`(?m)runbook_url: .*/(docs/\S+)#(\S+)$`)
)

// Each alert has a scenario, a test of its timing, and a section in the runbook.
func TestEveryAlertIsDescribedAndTested(t *testing.T) {
	rules, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	timing, err := os.ReadFile("../prometheus/rules_test.yaml")
	require.NoError(t, err)
	text, err := os.ReadFile("../../docs/observability.md")
	require.NoError(t, err)
	names, anchors := alertName.FindAllStringSubmatch(string(rules), -1), anchor.FindAllStringSubmatch(string(rules), -1)
	require.NotEmpty(t, names)
	require.Len(t, anchors, len(names))
	for _, field := range []string{"summary", "description", "severity"} {
		require.Equal(t, len(names), strings.Count(string(rules), field+": "), field)
	}
	var played []string
	for _, sc := range scenarios {
		played = append(played, sc.alerts...)
	}
	for i, name := range names {
		require.Contains(t, played, name[1])
		require.Contains(t, string(timing), "alertname: "+name[1]+"\n        exp_alerts")
		require.Contains(t, string(text), "\n### "+name[1]+"\n")
		require.Equal(t, []string{"docs/observability.md", strings.ToLower(name[1])}, anchors[i][1:])
	}
}

func TestPromtoolAcceptsTheFiles(t *testing.T) {
	need(t, "promtool")
	for _, args := range [][]string{
		{"check", "rules", "rules.yaml"}, {"check", "config", "prometheus.yml"}, {"test", "rules", "rules_test.yaml"},
	} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = "../prometheus"
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
	}
}
