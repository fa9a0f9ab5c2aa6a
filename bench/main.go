// Command bench compares etcdlock with other distributed locks: it starts the servers that
// it finds, runs the same workloads on all by turns, and writes a report with charts.
//
//	go -C bench run . -quick
//
// README.md says what is measured, and what is fair about it and what is not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// gcPercent is for the etcd in this process. Its heap is small, so with Go's default it would be collected
// tens of times a second, which one of the size that it has in production is not.
const gcPercent = 400

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures and reports. If ctx ends, what has been measured so far is reported.
func run(ctx context.Context, args []string, progress io.Writer) error {
	o, err := parseOptions(args, progress)
	if err != nil {
		return err
	}
	klog.SetLogger(logr.Discard()) // client-go's

	var chosen []Peer
	var need []Backend
	for _, p := range peers() {
		if o.peers.MatchString(p.Name) {
			chosen = append(chosen, p)
			need = append(need, p.Backend)
		}
	}
	work := slices.DeleteFunc(workloads(o), func(w workload) bool { return !o.run.MatchString(w.name) })
	if len(chosen) == 0 || len(work) == 0 {
		return errors.New("no peer or no workload has such a name")
	}

	about := describe(o)
	started := time.Now()
	servers, absent, err := startServers(ctx, o, need, progress)
	if err != nil {
		return err
	}
	defer closeServers(servers)

	r := &runner{options: o, targets: targets(chosen, servers), progress: progress}
	rows := r.run(ctx, work)
	rep := report{about: about, took: time.Since(started), peers: chosen, absent: absent, rows: rows, stopped: ctx.Err() != nil}
	if err := rep.write(o.out); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(progress, "the report is in %s\n", o.out)
	return ctx.Err()
}

// targets pairs the peers with the servers: all on one server next to each other.
func targets(peers []Peer, servers []Server) []target {
	var all []target
	for _, s := range servers {
		for _, p := range peers {
			if p.Backend == s.Backend() {
				all = append(all, target{p, s})
			}
		}
	}
	return all
}
