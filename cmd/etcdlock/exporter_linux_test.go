package main

import (
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

var address = regexp.MustCompile(`http://\S+/metrics`)

// exporter runs one in a namespace of the test's, and returns the address of its metrics.
func exporter(t *testing.T, endpoints []string, args ...string) (r *tool, url string) {
	t.Helper()
	r = prepare(t, endpoints, append([]string{"exporter", "--http", "127.0.0.1:0", "--namespace", name(t)}, args...)...).start()
	r.complains("/metrics")
	return r, address.FindString(r.errors.String())
}

func get(t *testing.T, url string) (status int, text string) {
	t.Helper()
	answer, err := http.Get(url)
	require.NoError(t, err)
	defer answer.Body.Close()
	all, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(all)
}

// shows waits until the metrics have all lines, and returns the metrics.
func shows(t *testing.T, url string, lines ...string) (text string) {
	t.Helper()
	eventually(t, strings.Join(lines, ", "), func() bool {
		_, text = get(t, url)
		for _, line := range lines {
			if !strings.Contains(text, "\n"+line+"\n") {
				return false
			}
		}
		return true
	})
	return text
}

func TestExporterShowsQueues(t *testing.T) {
	t.Parallel()
	r, url := exporter(t, shared.Endpoints(), "--name", "orders", "--name", "scheduler")
	shows(t, url, "etcdlock_exporter_up 1",
		`etcdlock_queue_holders{lock_name="orders"} 0`, `etcdlock_queue_age_seconds{lock_name="orders"} 0`,
		`etcdlock_queue_holders{lock_name="other"} 0`)

	namespace := []string{"--namespace", name(t)}
	h := start(t, append(namespace, "run", "orders")...)
	h.says(name(t) + "/orders/")
	start(t, append(namespace, "run", "orders", "true")...)
	start(t, append(namespace, "elect", "--id", "me", "scheduler")...).says(name(t))
	for _, customer := range []string{"customer/1", "customer/2"} {
		start(t, append(namespace, "run", customer)...).says(name(t))
	}
	text := shows(t, url,
		`etcdlock_queue_holders{lock_name="orders"} 1`, `etcdlock_queue_waiters{lock_name="orders"} 1`,
		`etcdlock_queue_holders{lock_name="scheduler"} 1`, `etcdlock_queue_waiters{lock_name="scheduler"} 0`,
		`etcdlock_queue_holders{lock_name="other"} 2`)
	require.NotContains(t, text, "customer")
	require.NotContains(t, text, `etcdlock_queue_age_seconds{lock_name="orders"} 0`+"\n")
	require.Contains(t, text, "process_start_time_seconds")

	h.signal(syscall.SIGTERM)
	h.code()
	shows(t, url, `etcdlock_queue_holders{lock_name="orders"} 0`, `etcdlock_queue_waiters{lock_name="orders"} 0`,
		`etcdlock_queue_age_seconds{lock_name="orders"} 0`)
	status, _ := get(t, strings.Replace(url, "/metrics", "/healthz", 1))
	require.Equal(t, http.StatusOK, status)
	r.signal(syscall.SIGTERM)
	require.Zero(t, r.code())
	require.Equal(t, 1, strings.Count(r.errors.String(), "\n"), "the address is all that there is to say")
}

func TestExporterCountsOnlyWhatMatches(t *testing.T) {
	t.Parallel()
	client := shared.Client(t)
	for _, key := range []string{"/a/1f", "/a/2f", "/b/1f"} {
		_, err := client.Put(within(t), name(t)+key, "etcdctl's")
		require.NoError(t, err)
	}
	r := start(t, "exporter", "--http", "127.0.0.1:0", "--prefix", "--name", name(t)+"/a", name(t)+"/a")
	r.complains("/metrics")
	shows(t, address.FindString(r.errors.String()),
		`etcdlock_queue_holders{lock_name="`+name(t)+`/a"} 1`, `etcdlock_queue_waiters{lock_name="`+name(t)+`/a"} 1`,
		`etcdlock_queue_holders{lock_name="other"} 0`)
}

// An exporter that starts before etcd, and one that outlives it, are the same: the last figures, and a metric that says so.
func TestExporterOutlivesEtcd(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client, member := cluster.Client(t), cluster.Members()[0]
	_, err := client.Put(within(t), name(t)+"/orders/1", "")
	require.NoError(t, err)
	member.Stop()
	_, url := exporter(t, cluster.Endpoints(), "--name", "orders")
	require.NotContains(t, shows(t, url, "etcdlock_exporter_up 0"), "etcdlock_queue", "nothing is known yet")
	require.NoError(t, member.Restart())
	shows(t, url, "etcdlock_exporter_up 1", `etcdlock_queue_holders{lock_name="orders"} 1`)

	member.Stop()
	shows(t, url, "etcdlock_exporter_up 0", `etcdlock_queue_holders{lock_name="orders"} 1`)
	status, _ := get(t, strings.Replace(url, "/metrics", "/healthz", 1))
	require.Equal(t, http.StatusOK, status, "a restart would mend nothing")
	require.NoError(t, member.Restart())
	_, err = client.Delete(within(t), name(t)+"/orders/1")
	require.NoError(t, err)
	shows(t, url, "etcdlock_exporter_up 1", `etcdlock_queue_holders{lock_name="orders"} 0`)
}

// The client of a user with a password cannot be made without an answer.
func TestExporterAndPageWithAPasswordWaitForEtcd(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t, embedtest.WithAuth("secret"))
	_, err := cluster.Client(t).Put(within(t), name(t)+"/orders/1", "")
	require.NoError(t, err)
	member := cluster.Members()[0]
	member.Stop()
	user := []string{"--user", "root:secret", "--dial-timeout", "200ms"}
	_, url := exporter(t, cluster.Endpoints(), append(user, "--name", "orders")...)
	require.NotContains(t, shows(t, url, "etcdlock_exporter_up 0"), "etcdlock_queue")
	waiting := prepare(t, cluster.Endpoints(), append([]string{"web", "--http", "127.0.0.1:0"}, user...)...).start()
	waiting.complains("trying again")
	left := prepare(t, cluster.Endpoints(), append([]string{"web"}, user...)...).start()
	left.complains("trying again")
	left.signal(syscall.SIGTERM)
	require.Zero(t, left.code())

	require.NoError(t, member.Restart())
	shows(t, url, "etcdlock_exporter_up 1", `etcdlock_queue_holders{lock_name="orders"} 1`)
	waiting.complains("locks at")

	wrong := prepare(t, cluster.Endpoints(), "exporter", "--http", "127.0.0.1:0", "--user", "root:wrong").start()
	require.Equal(t, exitRefused, wrong.code())
}

func TestExporterSaysThatEtcdRefuses(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t, embedtest.WithAuth("secret", embedtest.User{Name: "alice", Password: "a"}))
	r, url := exporter(t, cluster.Endpoints(), "--user", "alice:a")
	r.complains("permission denied")
	require.NotContains(t, shows(t, url, "etcdlock_exporter_up 0"), "etcdlock_queue")
	r.signal(syscall.SIGINT)
	require.Zero(t, r.code())
	require.Equal(t, 2, strings.Count(r.errors.String(), "\n"), "it says so once")
}

func TestExporterNeedsItsAddress(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	require.Equal(t, exitMistake, start(t, "exporter", "--http", taken.Addr().String()).code())
	require.Equal(t, exitMistake, start(t, "exporter", "[").code())
}

// One watch on the namespace is all that it costs etcd, however often it is scraped.
func TestScrapesMakeNoRequests(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	_, url := exporter(t, cluster.Endpoints())
	shows(t, url, "etcdlock_exporter_up 1")
	_, err := cluster.Client(t).Put(within(t), name(t)+"/x/1", "", clientv3.WithLease(0))
	require.NoError(t, err)
	shows(t, url, `etcdlock_queue_holders{lock_name="other"} 1`)
	before := cluster.Calls("Range")
	for range 200 {
		get(t, url)
	}
	require.Less(t, cluster.Calls("Range")-before, int64(100), "those that look whether etcd answers")
	require.LessOrEqual(t, cluster.Calls("Watch"), int64(2), "one, or another one after a recheck")
}
