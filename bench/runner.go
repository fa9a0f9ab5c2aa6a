package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// errUnfinished is wrapped with what ran into the time-out of a measurement.
var errUnfinished = errors.New("not finished")

// row is all measurements of one workload, at one of its numbers, on one target.
type row struct {
	workload workload
	param    int
	target   target
	rounds   [][]float64 // the workload's metrics
	trouble  string      // why there are no figures, or fewer
}

// summaries returns one for each metric of the workload.
func (r *row) summaries() []summary {
	all := make([]summary, len(r.workload.metrics))
	for i := range all {
		var figures []float64
		for _, round := range r.rounds {
			figures = append(figures, round[i])
		}
		all[i] = summarize(figures)
	}
	return all
}

// runner runs workloads on targets.
type runner struct {
	options  options
	targets  []target
	progress io.Writer

	mu    sync.Mutex // of what cells that run at the same time share
	cells int
}

// run measures everything by turns: all targets, then all again, so that what else the
// machine does meanwhile hits all alike. When ctx ends it returns what there is.
func (r *runner) run(ctx context.Context, all []workload) []*row {
	r.warm(ctx)
	var rows []*row
	for _, w := range all {
		started := time.Now()
		params := w.params
		if params == nil {
			params = []int{0}
		}
		hopeless := make(map[string]string) // targets that need not try larger numbers
		for _, param := range params {
			rows = append(rows, r.rounds(ctx, w, param, hopeless)...)
		}
		r.say("%s took %v\n", w.name, time.Since(started).Round(time.Second))
	}
	return rows
}

// warm has every server work for a while: a JVM is several times faster then.
func (r *runner) warm(ctx context.Context) {
	if r.options.warm == 0 {
		return
	}
	longer := &runner{options: r.options}
	longer.options.slice, longer.options.timeout = r.options.warm, r.options.timeout+2*r.options.warm
	w := hotWorkload([]int{32})
	warmed := make(map[Server]bool)
	for _, t := range r.targets {
		if warmed[t.server] || !w.takes(t.peer) || ctx.Err() != nil {
			continue
		}
		warmed[t.server] = true
		figures, err := longer.cell(ctx, w, w.params[0], t)
		r.say("%-35s %-42s %s\n", "warm-up", t, outcome(w, figures, err))
	}
	r.cells = longer.cells // whose names have been used
}

func (r *runner) rounds(ctx context.Context, w workload, param int, hopeless map[string]string) []*row {
	var rows []*row
	for _, t := range r.targets {
		if w.takes(t.peer) {
			rows = append(rows, &row{workload: w, param: param, target: t, trouble: hopeless[t.String()]})
		}
	}
	for round := range r.options.rounds {
		atATime := 1
		if w.idle {
			atATime = max(1, len(rows))
		}
		_ = parallel(ctx, len(rows), atATime, func(ctx context.Context, i int) error {
			row := rows[i]
			if row.trouble != "" {
				return nil
			}
			figures, err := r.cell(ctx, w, param, row.target)
			r.mu.Lock()
			defer r.mu.Unlock()
			switch {
			case ctx.Err() != nil:
			case errors.Is(err, errNoTry):
				row.trouble = errNoTry.Error()
			case err != nil:
				row.trouble = err.Error()
				if errors.Is(err, errUnfinished) {
					hopeless[row.target.String()] = fmt.Sprintf("not run, since %d did not finish", param)
				}
			default:
				row.rounds = append(row.rounds, figures)
			}
			r.say("%-14s %5s round %d/%d  %-42s %s\n", w.name, number(param), round+1, r.options.rounds, row.target, outcome(w, figures, err))
			return nil
		})
		if ctx.Err() != nil {
			break
		}
	}
	return rows
}

// cell measures once. What does not finish is cut off from its server and, if even that
// does not end it, left behind.
func (r *runner) cell(ctx context.Context, w workload, param int, t target) ([]float64, error) {
	r.mu.Lock()
	r.cells++
	c := &cell{target: t, options: r.options, name: fmt.Sprintf("bench-%d", r.cells), param: param}
	r.mu.Unlock()

	if s, ok := t.server.(tidier); ok {
		if err := s.tidy(ctx); err != nil {
			return nil, err
		}
	}
	limited, cancel := context.WithTimeout(ctx, r.options.timeout)
	defer cancel()
	type result struct {
		figures []float64
		err     error
	}
	ended := make(chan result, 1)
	go func() {
		figures, err := w.measure(limited, c)
		ended <- result{figures, err}
	}()
	var got result
	select {
	case got = <-ended:
		c.close()
	case <-limited.Done():
		c.close()
		select {
		case got = <-ended:
		case <-time.After(5 * time.Second):
		}
		got.err = fmt.Errorf("%w", limited.Err())
	}
	if got.err != nil && ctx.Err() == nil && limited.Err() != nil {
		return nil, fmt.Errorf("%w in %v", errUnfinished, r.options.timeout)
	}
	return got.figures, got.err
}

func (r *runner) say(format string, args ...any) { _, _ = fmt.Fprintf(r.progress, format, args...) }

func number(param int) string {
	if param == 0 {
		return ""
	}
	return fmt.Sprint(param)
}

func outcome(w workload, figures []float64, err error) string {
	if err != nil {
		return err.Error()
	}
	text := ""
	for i, f := range figures {
		text += fmt.Sprintf("%s %s; ", w.metrics[i].name, figure(f))
	}
	return text
}
