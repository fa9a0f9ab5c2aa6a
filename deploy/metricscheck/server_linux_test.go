package metricscheck

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// minute is how long a minute of the rules is in tests.
const minute = 2 * time.Second

// server is a real Prometheus.
type server struct{ url string }

// newServer scrapes the targets, by job, and evaluates rules if there are any.
func newServer(t *testing.T, every time.Duration, targets map[string][]string, rules string) *server {
	t.Helper()
	dir := t.TempDir()
	var config strings.Builder
	fmt.Fprintf(&config, "global: {scrape_interval: %v, scrape_timeout: %v, evaluation_interval: %v}\n", every, every, every)
	if rules != "" {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(rules), 0o600))
		config.WriteString("rule_files: [rules.yaml]\n")
	}
	config.WriteString("scrape_configs:\n")
	for job, addresses := range targets {
		fmt.Fprintf(&config, "  - {job_name: %q, static_configs: [{targets: [%s]}]}\n", job, strings.Join(addresses, ", "))
	}
	file := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(file, []byte(config.String()), 0o600))
	// A port that was free is not reserved, but all of 127.0.0.0/8 is this machine's.
	address := fmt.Sprintf("127.%d.%d.%d:4040", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	run(t, "prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	s := &server{"http://" + address}
	eventually(t, "Prometheus", func() bool {
		answer, err := http.Get(s.url + "/-/ready")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return s
}

// seriesJSON is one of a result. Only a query over a range has Values: a time in seconds, and a number as text.
type seriesJSON struct {
	Metric map[string]string
	Values [][2]any
}

func (s *server) api(t *testing.T, path string, values url.Values) []seriesJSON {
	t.Helper()
	answer, err := http.PostForm(s.url+path, values)
	require.NoError(t, err)
	defer answer.Body.Close()
	var result struct {
		Status, Error string
		Data          struct{ Result []seriesJSON }
	}
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&result))
	require.Equal(t, "success", result.Status, "%s: %s", values.Get("query"), result.Error)
	return result.Data.Result
}

func (s *server) query(t *testing.T, query string) []seriesJSON {
	t.Helper()
	return s.api(t, "/api/v1/query", url.Values{"query": {query}})
}

// sees waits until a query has a result.
func (s *server) sees(t *testing.T, query string) {
	t.Helper()
	eventually(t, query, func() bool { return len(s.query(t, query)) > 0 })
}

// fired returns the alerts of a job that have fired so far.
func (s *server) fired(t *testing.T, job string) (names []string) {
	t.Helper()
	for _, r := range s.query(t, fmt.Sprintf(`count by (alertname) (max_over_time(ALERTS{alertstate="firing", job=%q}[1h]))`, job)) {
		names = append(names, r.Metric["alertname"])
	}
	return names
}

var (
	minutes   = regexp.MustCompile(`(\[|for: )(\d+)m\b`)
	threshold = regexp.MustCompile(`> 10\n`)
)

// shortened returns the rules with shorter minutes, and a long wait of a second.
func shortened(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	rules := minutes.ReplaceAllStringFunc(string(text), func(found string) string {
		m := minutes.FindStringSubmatch(found)
		n, err := strconv.Atoi(m[2])
		require.NoError(t, err)
		return fmt.Sprintf("%s%ds", m[1], n*int(minute/time.Second))
	})
	require.Len(t, threshold.FindAllString(rules, -1), 1)
	return threshold.ReplaceAllString(rules, "> 1\n")
}
