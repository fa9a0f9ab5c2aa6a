package child

import (
	"sync"
	"syscall"
	"time"
)

// Runner starts commands one after the other, and none once a signal has asked for the end. One mutex guards
// both, so no command starts when it is too late. The zero value is ready.
type Runner struct {
	mu      sync.Mutex
	why     error // nothing is started any more
	running *Child
}

// Start runs a command if may returns nil. It returns may's error, or the reason why nothing is started any
// more. If a [Runner.Stop] does not find the command, a later may has to know the reason for it.
func (r *Runner) Start(spec Spec, may func() error) (*Child, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why != nil {
		return nil, r.why
	}
	if err := may(); err != nil {
		return nil, err
	}
	c, err := Start(spec)
	if err == nil {
		r.running = c
	}
	return c, err
}

// Stop asks the command that runs to end, and kills it after grace.
func (r *Runner) Stop(grace time.Duration) {
	if c := r.started(); c != nil {
		c.Stop(grace)
	}
}

// Resume gives the terminal to the command that runs, if this process has been put in the foreground.
func (r *Runner) Resume() {
	if c := r.started(); c != nil {
		c.Resume()
	}
}

// Forward sends sig to the command that runs. If the signal asks a program to end, or would end this process and
// no command has been started yet, nothing is started any more, why being the reason; it reports that.
// The command is killed after limit then, unless that is 0.
func (r *Runner) Forward(sig syscall.Signal, why error, limit time.Duration) (end bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	end = asksToEnd(sig) || r.running == nil && ends(sig)
	if end && r.why == nil {
		r.why = why
	}
	if r.running == nil {
		return end
	}
	r.running.Signal(sig)
	if end && limit > 0 {
		time.AfterFunc(limit, r.running.Kill)
	}
	return end
}

func (r *Runner) started() *Child {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running
}
