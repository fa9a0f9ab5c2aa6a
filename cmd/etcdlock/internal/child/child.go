// Package child runs a command as a process group of its own and knows when all of the group has ended.
//
// On Linux the command dies with this process, whatever ends it, and its orphans become children of this
// process, which reaps them. On other Unix systems the command outlives a SIGKILL of this process. On
// Windows the group is a job that ends with this process, and is ended without a warning.
package child

import (
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// killAgain is the pause between attempts to kill a group, in which a process may have been forking.
const killAgain = 20 * time.Millisecond

// Spec says what to run.
type Spec struct {
	Path string   // of the program
	Args []string // with the program's name at first
	Env  []string

	// Background is for a command beside another one: its standard input is empty, its output goes to
	// standard error, and the terminal stays where it is.
	Background bool
	// Left is called once if the command has ended and other processes of its group have not, a second later.
	Left func(processes []int)
	// Resumed is called when the command is stopped at the terminal and has been resumed.
	Resumed func()
}

// Status is how a command ended.
type Status struct {
	Code   int            // that it returned
	Signal syscall.Signal // that ended it, or 0
}

// ExitCode returns what a shell makes of it: 128 and the number of the signal that ended it.
func (s Status) ExitCode() int {
	if s.Signal != 0 {
		return 128 + int(s.Signal)
	}
	return s.Code
}

// Child is a command that was started. It is safe for concurrent use.
type Child struct {
	spec    Spec
	process *os.Process
	system  system // what the operating system needs

	done   chan struct{}
	status Status // valid when done is closed

	mu     sync.Mutex
	reaped bool // the number of the process and its group may be another's
}

// Start runs the command, with this process's standard input, output and error, and its terminal if it has one.
func Start(spec Spec) (*Child, error) {
	Adopt()
	c := &Child{spec: spec, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// On Linux the command dies with the thread that started it, so this one waits for its end.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.start()
		started <- err
		if err == nil {
			c.follow()
			close(c.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// files returns what the command reads and writes. The second result closes what was opened.
func (s Spec) files() ([]*os.File, func(), error) {
	if !s.Background {
		return []*os.File{os.Stdin, os.Stdout, os.Stderr}, func() {}, nil
	}
	empty, err := os.Open(os.DevNull)
	if err != nil {
		return nil, nil, err
	}
	return []*os.File{empty, os.Stderr, os.Stderr}, func() { _ = empty.Close() }, nil
}

// PID returns the number of the command's process.
func (c *Child) PID() int { return c.process.Pid }

// Done returns a channel that is closed when every process of the group has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Wait waits until every process of the group has ended.
func (c *Child) Wait() Status {
	<-c.done
	return c.status
}

// Signal sends sig to the group, if it has not ended.
func (c *Child) Signal(sig syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaped {
		c.signal(sig)
	}
}

// Stop asks the group to end and kills it after grace.
func (c *Child) Stop(grace time.Duration) {
	if grace > 0 {
		c.Signal(syscall.SIGTERM)
		c.wake() // a stopped process does not handle a signal
	}
	time.AfterFunc(grace, c.Kill)
}

// Kill kills the group. It returns at once.
func (c *Child) Kill() {
	c.Signal(syscall.SIGKILL)
	go func() {
		for {
			select {
			case <-c.done:
				return
			case <-time.After(killAgain):
				c.Signal(syscall.SIGKILL)
			}
		}
	}()
}
