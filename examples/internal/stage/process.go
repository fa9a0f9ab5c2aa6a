package stage

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

const (
	// childArgument makes the program play a role instead of the story.
	childArgument = "play"
	// leaveTimeout is how long a process that was told to leave may take.
	leaveTimeout = 3 * time.Second
)

// order is what a process gets at its start, in a line of JSON.
type order struct {
	Endpoints []string
	Prefix    string
	Began     time.Time
	Job       json.RawMessage
}

// Process is one that the story has started.
type Process struct {
	Name string
	// Lines are what it says with Printf, a line each. It is closed when the process has
	// said its last. Somebody has to read them; Wait does, if nobody else.
	Lines <-chan string

	cmd   *exec.Cmd
	input io.Closer
	ended chan struct{} // closed when the process is gone, with err
	err   error
}

// Start starts a process of this program that plays role, and sends it its job, which it reads with
// Job. The process is asked to leave when ctx ends, and when this process dies.
func (e *Etcd) Start(ctx context.Context, name, role string, job any) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	o := order{Endpoints: e.Endpoints, Prefix: e.Prefix, Began: e.began}
	if o.Job, err = json.Marshal(job); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, childArgument, role)
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Cancel = func() error {
		_ = input.Close() // which Leave may have done already
		return nil
	}
	cmd.WaitDelay = leaveTimeout
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	lines := make(chan string, 1024)
	p := &Process{Name: name, Lines: lines, cmd: cmd, input: input, ended: make(chan struct{})}
	go func() { // ends with the process, if its lines are read
		for scanner := bufio.NewScanner(output); scanner.Scan(); {
			lines <- scanner.Text()
		}
		p.err = cmd.Wait()
		close(lines)
		close(p.ended)
	}()
	// A process that is not there to hear of its job is going to exit.
	_ = json.NewEncoder(input).Encode(o)
	return p, nil
}

// Leave tells the process to leave in good order, as the platform of a service would with SIGTERM.
func (p *Process) Leave() { _ = p.input.Close() }

// Kill ends the process with SIGKILL, or what comes closest. It gets no chance to release anything.
func (p *Process) Kill() error { return p.cmd.Process.Kill() }

// Signal sends another signal.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// PID returns the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Wait waits until the process has gone, reads what it still says, and returns how it ended.
func (p *Process) Wait() error {
	for range p.Lines { // until it is closed
	}
	<-p.ended
	if p.err != nil {
		return fmt.Errorf("%s: %w", p.Name, p.err)
	}
	return nil
}

// Job reads what the story wants of this process.
func (e *Etcd) Job(into any) error { return json.Unmarshal(e.job, into) }

// child plays a role until it is done, its input ends, or it is asked to terminate.
func (p Program) child(role string, in io.Reader, out, errOut io.Writer) int {
	// Ctrl-C reaches every process of the terminal, but leaving is for the story to order.
	signal.Ignore(os.Interrupt, syscall.SIGPIPE)
	act, ok := p.Roles[role]
	var o order
	input := json.NewDecoder(in)
	if err := input.Decode(&o); err != nil || !ok {
		p.complain(errOut, "no role %q, or no orders: %v", role, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() { // ends with the process: a read cannot be interrupted
		defer stop()
		_ = input.Decode(&struct{}{}) // the end of the input
	}()
	client, err := Connect(o.Endpoints)
	if err != nil {
		p.complain(errOut, "%v", err)
		return 1
	}
	defer func() { _ = client.Close() }()
	e := &Etcd{Client: client, Endpoints: o.Endpoints, Prefix: o.Prefix, program: p, job: o.Job, out: out, began: o.Began}
	if err := act(ctx, e); err != nil && (ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
		p.complain(errOut, "%s: %v", role, err)
		return 1
	}
	return 0
}
