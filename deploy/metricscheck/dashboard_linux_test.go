package metricscheck

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// dashboard is what is checked of Grafana's file.
type dashboard struct {
	Panels []struct {
		Title       string
		Targets     []struct{ Expr, LegendFormat string }
		FieldConfig struct{ Defaults struct{ Unit string } }
	}
	Templating struct {
		List []struct{ Name string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile("../grafana/etcdlock.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

// expression has what Grafana puts in place of variables.
func expression(text string, interval time.Duration) string {
	return strings.NewReplacer("$__rate_interval", interval.String(), "$job", ".*", "$lock_name", ".*").Replace(text)
}

var legendLabel = regexp.MustCompile(`{{(\w+)}}`)

// checkDashboard asks for every expression of the dashboard.
func checkDashboard(t *testing.T, p *server) {
	t.Helper()
	d := readDashboard(t)
	require.Len(t, d.Panels, 12)
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			found := p.query(t, expression(target.Expr, time.Minute))
			require.NotEmpty(t, found, "%s: %s", panel.Title, target.Expr)
			for _, label := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
				if label[1] != "error_type" { // success has none
					require.NotEmpty(t, found[0].Metric[label[1]], "%s: %s", panel.Title, target.LegendFormat)
				}
			}
		}
	}
}

func TestDashboardHasItsVariables(t *testing.T) {
	var names []string
	for _, v := range readDashboard(t).Templating.List {
		names = append(names, v.Name)
	}
	require.Equal(t, []string{"datasource", "job", "lock_name"}, names)
}
