package main

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/status"
)

const (
	probeEvery   = time.Second
	probeTimeout = 2 * time.Second

	// For every longQueue places of a lock the feed pauses so long.
	longQueue    = 100
	perLongQueue = 3 * time.Millisecond
)

// news is what a feed has gathered since it was asked last.
type news struct {
	changed map[string]status.Lock // by prefix; locks that are gone have no kind
	whole   bool                   // every lock has been told of once
	refusal error                  // by etcd, of the watch or the reads behind it; nil when it can be read again
	heard   time.Time              // when etcd answered last
}

// feed gathers what a watch says, for a reader that looks now and then. However slow that is, there is one state of each
// lock at most.
type feed struct {
	mu  sync.Mutex
	now news
}

func newFeed() *feed { return &feed{now: news{changed: map[string]status.Lock{}, heard: time.Now()}} }

func (f *feed) follow(ctx context.Context, client *clientv3.Client, g glob, opts []etcdlock.Option) {
	for q, err := range etcdlock.FollowAll(ctx, client, opts...) {
		if err != nil || q.Prefix == "" || g.matches(q.Name) {
			f.put(q, err)
		}
		// Each state of a long queue is costly, and there are many of them. Those that come meanwhile are skipped.
		sleep(ctx, min(frame, time.Duration(len(q.Places)/longQueue)*perLongQueue))
	}
}

// sleep waits for d, or for the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (f *feed) put(q etcdlock.Queue, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err != nil:
		f.now.refusal = err
		return
	case q.Prefix == "": // all locks have been yielded
		f.now.whole, f.now.refusal = true, nil
		return
	}
	s := status.Summarize(q)
	if len(q.Places) == 0 && q.Size == 0 {
		s.Kind = ""
	}
	f.now.changed[q.Prefix] = s
}

// probe asks etcd for a key all the time: a watch does not tell whether etcd is away or nothing happens.
func probe(ctx context.Context, client *clientv3.Client, key string, answered func(time.Time)) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, probeTimeout)
		_, err := client.Get(limited, key)
		cancel()
		if !unavailable(err) {
			answered(time.Now())
		}
		sleep(ctx, probeEvery)
	}
}

func (f *feed) answered(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now.heard = at
}

// take returns the news, which are not told again.
func (f *feed) take() news {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.now
	f.now.changed = map[string]status.Lock{}
	return n
}
