package main

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// describe says what the figures depend on besides the code, as name and value.
func describe(o options) [][2]string {
	about := [][2]string{
		{"date", time.Now().Format("2006-01-02 15:04 MST")},
		{"system", fmt.Sprintf("%s/%s, %d processors%s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), processor())},
		{"load before the run", load()},
		{"write of 4 kB with fsync", fsyncTime()},
		{"Go, GOGC", runtime.Version() + ", " + cmp.Or(os.Getenv("GOGC"), strconv.Itoa(gcPercent))},
		{"warm-up, rounds, slice, time-out, TTL of crashes", fmt.Sprintf("%v, %d, %v, %v, %v", o.warm, o.rounds, o.slice, o.timeout, o.ttl)},
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range build.Deps {
			switch dep.Path {
			case "go.etcd.io/etcd/server/v3", "github.com/go-redsync/redsync/v4", "github.com/bsm/redislock",
				"github.com/redis/go-redis/v9", "github.com/redis/rueidis", "github.com/go-zookeeper/zk", "k8s.io/client-go":
				about = append(about, [2]string{dep.Path, dep.Version})
			}
		}
	}
	return about
}

// processor and load are known on Linux only.
func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return "," + value
		}
	}
	return ""
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 3 {
		return "unknown"
	}
	return strings.Join(fields[:3], " ")
}

// fsyncTime is what every durable write of a server has to wait for.
func fsyncTime() string {
	f, err := os.CreateTemp("", "lockbench-")
	if err != nil {
		return "unknown"
	}
	defer func() { _ = os.Remove(f.Name()) }()
	defer func() { _ = f.Close() }()
	var took []float64
	for range 50 {
		began := time.Now()
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return "unknown"
		}
		if err := f.Sync(); err != nil {
			return "unknown"
		}
		took = append(took, milliseconds(time.Since(began)))
	}
	return fmt.Sprintf("median %s ms", figure(quantile(took, 0.5)))
}
