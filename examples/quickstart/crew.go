package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

const (
	// workerArgument makes the program a worker instead of the parent of some.
	workerArgument = "worker"
	// leaveTimeout is how long a worker that was told to leave may take.
	leaveTimeout = 3 * time.Second
)

// child is a worker process as its parent sees it.
type child struct {
	name    string
	process *os.Process
	input   io.WriteCloser
	killed  bool // by us
}

// news is what a child reports, and at last how it ended.
type news struct {
	report
	from   *child
	exited bool
	err    error
}

// hire starts a worker, which ends when ctx does. Whatever happens to it, the last news
// is that it has exited: by then the process is gone and has been waited for.
func hire(ctx context.Context, j job, to chan<- news) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, workerArgument)
	cmd.Stderr = os.Stderr // for a panic; all else is reported
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	// Asked to leave before it is made to. The pipe closes by itself, too, if this
	// process dies, however it dies: no worker stays behind.
	cmd.Cancel = input.Close
	cmd.WaitDelay = leaveTimeout
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{name: j.Name, process: cmd.Process, input: input}
	go func() { // ends with the process; its news are read until then
		reports := json.NewDecoder(output)
		for {
			n := news{from: c}
			if reports.Decode(&n.report) != nil {
				break // the end, or cut short by the kill
			}
			to <- n
		}
		_, _ = io.Copy(io.Discard, output) // Wait is to be called when all has been read
		to <- news{from: c, exited: true, err: cmd.Wait()}
	}()
	// A worker that is not there to hear of its job is going to exit.
	_ = c.tell(j)
	return c, nil
}

func (c *child) tell(message any) error { return json.NewEncoder(c.input).Encode(message) }

// kill ends the process with SIGKILL, or what comes closest on other systems. It gets no
// chance to release anything.
func (c *child) kill() error {
	if err := c.process.Kill(); err != nil {
		return fmt.Errorf("killing %s: %w", c.name, err)
	}
	c.killed = true
	return nil
}
