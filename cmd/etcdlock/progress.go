package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/status"
)

const (
	progressAfter = time.Second      // most waits are shorter
	progressEvery = 10 * time.Second // a look costs a read, and a request for each lease in the queue
)

// showProgress names the holder on a terminal while the lock is waited for. The function that it returns ends that.
func showProgress(ctx context.Context, c *connection, src *source, name string) (stop func()) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for wait := progressAfter; ; wait = progressEvery {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
			limited, cancel := c.limited(ctx)
			q, err := etcdlock.Inspect(limited, src.Client, name, c.options()...)
			cancel()
			if err == nil && ctx.Err() == nil {
				say("%s", waitingFor(status.Describe(q), os.Getpid(), time.Now()))
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// waitingFor names the holder, and says how many are ahead of the process.
func waitingFor(q status.Queue, pid int, now time.Time) string {
	if len(q.Holders) == 0 {
		return fmt.Sprintf("waiting for %q", q.Name)
	}
	first := q.Holders[0]
	ahead := len(q.Holders)
	for _, w := range q.Waiters {
		if w.PID == pid {
			break
		}
		ahead++
	}
	return fmt.Sprintf("waiting for %q: %d ahead, the first is %s, in line for %s", q.Name, ahead, ownerOf(first), since(first.Since, now))
}
