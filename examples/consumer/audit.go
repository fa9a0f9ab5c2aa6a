package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// audit follows the counters of all partitions.
type audit struct {
	reading sync.WaitGroup

	mu       sync.Mutex
	last     [count]handled
	at       [count]time.Time
	total    int
	moves    [count]int // to another consumer, since the last call of since
	pause    time.Duration
	mistakes []string
}

// follow starts to follow. It ends with ctx.
func (a *audit) follow(ctx context.Context, q events) {
	changes := q.client.Watch(ctx, q.prefix+"handled/", clientv3.WithPrefix(), clientv3.WithRev(1))
	a.reading.Go(func() {
		for response := range changes {
			a.mu.Lock()
			for _, event := range response.Events {
				a.take(q, event)
			}
			a.mu.Unlock()
		}
	})
}

func (a *audit) take(q events, event *clientv3.Event) {
	partition, err := strconv.Atoi(strings.TrimPrefix(string(event.Kv.Key), q.prefix+"handled/"))
	var now handled
	if err != nil || event.Type != clientv3.EventTypePut || json.Unmarshal(event.Kv.Value, &now) != nil {
		return
	}
	before := a.last[partition]
	if now.Message != before.Message+1 {
		a.mistakes = append(a.mistakes, fmt.Sprintf("partition %d: message %d after %d", partition, now.Message, before.Message))
	}
	if now.Token < before.Token {
		a.mistakes = append(a.mistakes, fmt.Sprintf("partition %d: an earlier owner has written after %s", partition, before.By))
	}
	if before.By != "" && before.By != now.By {
		a.moves[partition]++
	}
	if before.By != "" {
		a.pause = max(a.pause, time.Since(a.at[partition]))
	}
	a.total++
	a.last[partition], a.at[partition] = now, time.Now()
}

// since returns what has happened since the last call: partitions that moved, how often the one that moved most, and the
// longest time without a message from a partition.
func (a *audit) since() (moved, most int, pause time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for partition, n := range a.moves {
		if n > 0 {
			moved++
		}
		most = max(most, n)
		a.moves[partition] = 0
	}
	pause, a.pause = a.pause, 0
	return moved, most, pause
}

// everywhere waits until every partition has handled a message that was not when it is called.
func (a *audit) everywhere(ctx context.Context) error {
	a.mu.Lock()
	before := a.last
	a.mu.Unlock()
	for {
		a.mu.Lock()
		waiting := 0
		for partition, now := range a.last {
			if now.Message == before[partition].Message {
				waiting++
			}
		}
		a.mu.Unlock()
		if waiting == 0 {
			return nil
		}
		select {
		case <-time.After(pace / 4):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
