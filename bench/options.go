package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// options are what the flags say.
type options struct {
	members    []int
	fsync      []bool
	run, peers *regexp.Regexp
	warm       time.Duration
	rounds     int
	slice      time.Duration
	timeout    time.Duration
	ttl        time.Duration
	contenders []int
	names      []int
	herd       []int
	zookeeper  string
	out        string
}

// quickly is what -quick sets, unless the flag is given as well.
var quickly = map[string]string{
	"fsync": "on", "warm": "0s", "rounds": "1", "slice": "300ms", "timeout": "20s", "ttl": "4s",
	"contenders": "2,32", "names": "64", "herd": "200",
}

func parseOptions(args []string, output io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(output)
	members := fs.String("members", "1", "`sizes` of clusters of etcd and of ZooKeeper, as in 1,3")
	fsync := fs.String("fsync", "both", "of etcd and ZooKeeper: `on, off or both`")
	run := fs.String("run", "", "`regexp` of workloads")
	peers := fs.String("peers", "", "`regexp` of peers")
	fs.DurationVar(&o.warm, "warm", 30*time.Second, "how long each server works before anything is measured; a JVM needs it")
	fs.IntVar(&o.rounds, "rounds", 3, "how often each measurement is made, by turns with the others")
	fs.DurationVar(&o.slice, "slice", time.Second, "how long a measurement of a rate takes")
	fs.DurationVar(&o.timeout, "timeout", time.Minute, "of one measurement; what does not finish is reported so")
	fs.DurationVar(&o.ttl, "ttl", 4*time.Second, "of leases where crashes are measured; whole seconds, ZooKeeper grants no less than 4")
	contenders := fs.String("contenders", "2,8,32,128", "`numbers` of contenders of the hot lock")
	names := fs.String("names", "64,256,1024", "`numbers` of goroutines, each with names of its own")
	herd := fs.String("herd", "500,1000,2000", "`sizes` of the herd")
	fs.StringVar(&o.zookeeper, "zookeeper", "/usr/share/java/zookeeper.jar", "`classpath` of ZooKeeper's server")
	fs.StringVar(&o.out, "out", "report", "`directory` for the report")
	quick := fs.Bool("quick", false, "a small run, for a first look; other flags overrule it")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	if *quick {
		given := make(map[string]bool)
		fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
		for name, value := range quickly {
			if !given[name] {
				if err := fs.Set(name, value); err != nil {
					return o, fmt.Errorf("set -%s: %w", name, err)
				}
			}
		}
	}

	var errs []error
	numbers := func(name, list string) []int {
		all, err := parseNumbers(list)
		if err != nil {
			errs = append(errs, fmt.Errorf("-%s: %w", name, err))
		}
		return all
	}
	o.members = numbers("members", *members)
	o.contenders = numbers("contenders", *contenders)
	o.names = numbers("names", *names)
	o.herd = numbers("herd", *herd)
	var ok bool
	if o.fsync, ok = map[string][]bool{"on": {true}, "off": {false}, "both": {true, false}}[*fsync]; !ok {
		errs = append(errs, fmt.Errorf("-fsync: %q is none of on, off, both", *fsync))
	}
	var err error
	if o.run, err = regexp.Compile(*run); err != nil {
		errs = append(errs, fmt.Errorf("-run: %w", err))
	}
	if o.peers, err = regexp.Compile(*peers); err != nil {
		errs = append(errs, fmt.Errorf("-peers: %w", err))
	}
	if o.rounds < 1 || o.slice <= 0 || o.timeout <= 0 || o.ttl < 2*time.Second || o.warm < 0 {
		errs = append(errs, errors.New("-rounds, -slice and -timeout must be positive, -ttl at least 2s, -warm not negative"))
	}
	return o, errors.Join(errs...)
}

// parseNumbers parses a list of positive numbers that are separated by commas.
func parseNumbers(list string) ([]int, error) {
	var all []int
	for part := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a positive number", part)
		}
		all = append(all, n)
	}
	return all, nil
}
