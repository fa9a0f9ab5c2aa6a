//go:build linux || darwin

package child

import (
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// look is how often processes are counted that the command has left behind.
	look = 20 * time.Millisecond

	// leaving is how long they may take to end before that is reported: a signal to the group ends all of them, but
	// not at the same moment.
	leaving = time.Second
)

// own has the commands that their Child reaps.
var own = struct {
	sync.Mutex
	pids map[int]bool
}{pids: make(map[int]bool)}

// system has no group: its number is that of the process.
type system struct {
	foreground bool // the terminal was given to the group at the start
}

func (c *Child) start() error {
	files, closeFiles, err := c.spec.files()
	if err != nil {
		return err
	}
	defer closeFiles()
	own.Lock()
	defer own.Unlock()
	c.process, err = os.StartProcess(c.spec.Path, c.spec.Args, &os.ProcAttr{
		Env:   c.spec.Env,
		Files: files,
		Sys:   attributes(),
	})
	if err == nil {
		own.pids[c.PID()] = true
	}
	return err
}

// follow returns when every process of the group has ended and the command has been reaped.
func (c *Child) follow() {
	c.system.foreground = !c.spec.Background && giveTerminal(c.PID())
	if c.system.foreground {
		c.wake() // it may have been stopped for reading too early
	}
	c.await()
	ended := time.Now()
	for reported := false; ; {
		others := c.others()
		if len(others) == 0 {
			break
		}
		if !reported && c.spec.Left != nil && time.Since(ended) > leaving {
			c.spec.Left(others)
			reported = true
		}
		time.Sleep(look)
	}
	if c.system.foreground {
		takeTerminal(c.PID())
	}
	c.reap()
}

// Resume gives the terminal to the group if this process has been put in the foreground, as by fg.
func (c *Child) Resume() {
	if giveTerminal(c.PID()) {
		c.wake()
	}
}

func (c *Child) wake() { c.Signal(syscall.SIGCONT) }

// signal requires mu, and that the command has not been reaped.
func (c *Child) signal(sig syscall.Signal) { _ = syscall.Kill(-c.PID(), sig) }

// reap collects the command's status. Afterwards its number may belong to another process.
func (c *Child) reap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	state, err := c.process.Wait()
	c.reaped = true
	own.Lock()
	delete(own.pids, c.PID())
	own.Unlock()
	if err != nil {
		c.status = Status{Code: -1} // nothing else waits for it, so this does not happen
		return
	}
	c.status = Status{Code: state.ExitCode()}
	if s, ok := state.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		c.status = Status{Signal: s.Signal()}
	}
}
