package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Levels of a finding.
const (
	levelOK   = "OK"
	levelWarn = "WARN"
	levelFail = "FAIL"
)

// exitIll is that of a doctor that has found something.
const exitIll = 1

// diagnosisJSON is what "doctor -o json" prints. Fields are added, and keep their meaning.
type diagnosisJSON struct {
	OK       bool      `json:"ok"` // nothing fails, and with --strict nothing warns
	Findings []finding `json:"findings"`
}

// finding is one thing that was looked at.
type finding struct {
	Level  string `json:"level"` // OK, WARN or FAIL
	Check  string `json:"check"`
	Text   string `json:"text"`
	Advice string `json:"advice,omitempty"` // what to type
}

// doctor looks at a cluster and at what the locks need of it.
type doctor struct {
	*connection
	client  *clientv3.Client
	ttl     seconds
	history int64

	findings []finding
}

func (d *doctor) add(level, check, advice, format string, args ...any) {
	d.findings = append(d.findings, finding{Level: level, Check: check, Text: fmt.Sprintf(format, args...), Advice: advice})
}

func newDoctor(c *connection) *cobra.Command {
	var f format
	var strict bool
	d := &doctor{connection: c, ttl: seconds{defaultTTL}}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what endangers locks in this etcd",
		Long: `Doctor checks etcd's members, alarms and history, permissions, latency, and the keys and leases of all locks.
Each finding is a line, with a command that helps if something is wrong. It takes a lock of its own, and writes
nothing else. The exit code is 1 if something fails, and with --strict if something warns.`,
		Args: mistakes(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if d.client, err = c.client(); err != nil {
				return err
			}
			defer closeClient(d.client)
			d.examine(cmd.Context())
			result := diagnosisJSON{OK: d.well(strict), Findings: d.findings}
			if err := printDiagnosis(cmd.OutOrStdout(), f.name, result); err != nil {
				return err
			}
			if !result.OK {
				return &exitError{code: exitIll}
			}
			return nil
		},
	}
	f.register(cmd, asTable, asJSON)
	cmd.Flags().Var(&d.ttl, "ttl", "the TTL that locks are taken with")
	cmd.Flags().Int64Var(&d.history, "history", 1_000_000, "how many revisions may be kept before the last compaction counts as too old")
	cmd.Flags().BoolVar(&strict, "strict", false, "a warning is a failure")
	return cmd
}

func (d *doctor) examine(ctx context.Context) {
	if !d.members(ctx) {
		return // nothing else would be answered
	}
	for _, check := range []func(context.Context){
		d.alarms, d.compaction, d.permissions, d.election, d.latency, d.contents, d.clock,
	} {
		check(ctx)
	}
}

func (d *doctor) well(strict bool) bool {
	for _, f := range d.findings {
		if f.Level == levelFail || strict && f.Level == levelWarn {
			return false
		}
	}
	return true
}

func printDiagnosis(to io.Writer, format string, result diagnosisJSON) error {
	if format == asJSON {
		return printJSON(to, result)
	}
	colour := to == io.Writer(os.Stdout) && coloured(os.Stdout)
	var rows [][]string
	for _, f := range result.Findings {
		text := f.Text
		if f.Advice != "" {
			text += ": " + f.Advice
		}
		level := f.Level
		if colour {
			level = colours[level] + level + "\x1b[0m"
		}
		rows = append(rows, []string{level, f.Check, printable(text)})
	}
	return printTable(to, rows)
}

// colours of levels are green, yellow and red.
var colours = map[string]string{levelOK: "\x1b[32m", levelWarn: "\x1b[33m", levelFail: "\x1b[31m"}

// answered bounds a single question.
func (d *doctor) answered(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, max(d.dial, time.Second))
}
