package main

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/etcdlock/locks/etcdlock"
)

// unanswered is how long etcd may be silent before figures count as old. It is asked every second.
const unanswered = 5 * time.Second

var (
	holdersDesc = prometheus.NewDesc("etcdlock_queue_holders", "Holders of a lock, as etcd knows them.", []string{"lock_name"}, nil)
	waitersDesc = prometheus.NewDesc("etcdlock_queue_waiters", "Waiters for a lock, as etcd knows them.", []string{"lock_name"}, nil)
	ageDesc     = prometheus.NewDesc("etcdlock_queue_age_seconds",
		"For how long the first in line for a lock has been there; 0 if nobody is.", []string{"lock_name"}, nil)
	upDesc = prometheus.NewDesc("etcdlock_exporter_up", "1 if etcd answers, and lets the exporter read the locks.", nil, nil)
)

// queues are those of all locks, and a [prometheus.Collector].
type queues struct {
	names map[string]bool // that are labels

	mu      sync.Mutex
	known   bool             // everything has been read once
	refusal error            // by etcd, of the watch or the reads behind it; nil when it can be read again
	heard   time.Time        // when etcd answered last
	by      map[string]queue // prefix
}

// queue is what is exported of a lock.
type queue struct {
	label            string
	holders, waiters int
	first            etcdlock.Token
	since            time.Time // the first is in line
}

func newQueues(names []string) *queues {
	q := &queues{names: map[string]bool{}, by: map[string]queue{}}
	for _, name := range names {
		q.names[name] = true
	}
	return q
}

func (q *queues) answered(at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.heard = at
}

// know notes that all locks have been put, and that etcd can be read.
func (q *queues) know() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.known, q.refusal = true, nil
}

func (q *queues) refuse(err error) {
	q.mu.Lock()
	before := q.refusal
	q.refusal = err
	q.mu.Unlock()
	if before == nil || before.Error() != err.Error() {
		say("%s", message(err))
	}
}

// put takes in the latest state of a lock.
func (q *queues) put(now etcdlock.Queue, counts bool, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !counts || len(now.Places) == 0 {
		delete(q.by, now.Prefix)
		return
	}
	first := now.Places[0]
	next := queue{
		label: q.label(now.Name), holders: now.Holding, waiters: len(now.Places) - now.Holding,
		first: first.Token, since: first.Owner.Since,
	}
	if before, ok := q.by[now.Prefix]; next.since.IsZero() {
		next.since = at
		if ok && before.first == next.first {
			next.since = before.since
		}
	}
	q.by[now.Prefix] = next
}

func (q *queues) label(name string) string {
	if q.names[name] {
		return name
	}
	return "other"
}

// Describe implements [prometheus.Collector].
func (q *queues) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{holdersDesc, waitersDesc, ageDesc, upDesc} {
		descs <- d
	}
}

// Collect implements [prometheus.Collector]. Locks that nobody holds have series, too.
func (q *queues) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	all, up := q.read(time.Now())
	gauge(upDesc, up)
	for label, t := range all {
		gauge(holdersDesc, float64(t.holders), label)
		gauge(waitersDesc, float64(t.waiters), label)
		gauge(ageDesc, t.age.Seconds(), label)
	}
}

// total is about the locks of a label.
type total struct {
	holders, waiters int
	age              time.Duration
}

// read returns nothing about locks before everything has been read once.
func (q *queues) read(now time.Time) (all map[string]total, up float64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.known {
		return nil, 0
	}
	all = map[string]total{"other": {}}
	for name := range q.names {
		all[name] = total{}
	}
	for _, lock := range q.by {
		t := all[lock.label]
		t.holders += lock.holders
		t.waiters += lock.waiters
		t.age = max(t.age, now.Sub(lock.since))
		all[lock.label] = t
	}
	if q.refusal == nil && now.Sub(q.heard) < unanswered {
		up = 1
	}
	return all, up
}
