// Package fleet is what the stories of this module have in common: three replicas do something every second, one of
// them at a time, and the one that has just done it is killed.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/etcdlock/locks/examples/internal/stage"
)

// Ticks is how many there are before the kill, and after it.
const Ticks = 3

// Story starts replicas, each with a job of its own, and ends after so many ticks. A replica prints its name and does at
// each tick; any other line is a failure. After the kill it says what is to be expected.
func Story(ctx context.Context, e *stage.Etcd, does, expected string, job func(name string, number int) any) error {
	replicas := map[string]*stage.Process{}
	lines := make(chan string)
	ended := make(chan struct{})
	for i := range 3 {
		name := fmt.Sprintf("replica-%d", i+1)
		p, err := e.Start(ctx, name, "replica", job(name, i))
		if err != nil {
			return err
		}
		replicas[name] = p
		go func() { // ends with the process
			for line := range p.Lines {
				select {
				case lines <- line:
				case <-ended:
				}
			}
		}()
	}
	var done []time.Time
	killed := ""
	for len(done) < 2*Ticks {
		select {
		case line := <-lines:
			e.Say("%s", line)
			name, text, _ := strings.Cut(line, " ")
			if text != does {
				return errors.New(line)
			}
			// A delayed tick may come close to the next one, but not three ticks within a second.
			done = append(done, time.Now())
			if n := len(done); n > 2 && done[n-1].Sub(done[n-3]) < time.Second {
				return errors.New("a tick has been served twice")
			}
			if len(done) == Ticks {
				killed = name
				if err := replicas[name].Kill(); err != nil {
					return err
				}
				e.Say("%s is killed%s", name, expected)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	close(ended)
	for name, p := range replicas {
		p.Leave()
		if err := p.Wait(); err != nil && name != killed {
			return err
		}
	}
	return nil
}
