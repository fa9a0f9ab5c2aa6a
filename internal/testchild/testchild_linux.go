package testchild

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Be is for an init function of the tests. In a process that Start has started with that variable it runs act with the
// arguments, prints its error if there is one, and exits.
func Be(variable string, act func(arguments []string) error) {
	arguments := strings.Fields(os.Getenv(variable))
	if len(arguments) == 0 {
		return
	}
	if err := act(arguments); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Child is another process. It is killed when this one ends, in whatever way.
type Child struct {
	*exec.Cmd
	Lines <-chan string // that it has printed; closed at its end

	kill sync.Once
	over chan struct{} // closed by Kill
	read chan struct{} // closed when nothing more is read
}

// Start starts this test binary with arguments for Be, which contain no spaces. The process is killed at the end of t.
func Start(t testing.TB, variable string, arguments ...string) *Child {
	t.Helper()
	lines := make(chan string, 100)
	p := &Child{Cmd: exec.Command(os.Args[0]), Lines: lines, over: make(chan struct{}), read: make(chan struct{})}
	p.Env = append(os.Environ(), variable+"="+strings.Join(arguments, " "))
	p.Stderr = os.Stderr
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := p.StdoutPipe()
	if err == nil {
		err = p.Cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.read)
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			select {
			case lines <- scanner.Text():
			case <-p.over:
			}
		}
	}()
	t.Cleanup(p.Kill)
	return p
}

// Next returns the next line.
func (p *Child) Next(t testing.TB) string {
	t.Helper()
	select {
	case line, ok := <-p.Lines:
		if !ok {
			t.Fatal("the process has ended")
		}
		return line
	case <-time.After(time.Minute):
		t.Fatal("the process says nothing")
	}
	return ""
}

// Kill kills the process, and waits for its end. It may be called again.
func (p *Child) Kill() {
	p.kill.Do(func() {
		close(p.over)
		_ = p.Process.Kill()
		<-p.read
		_ = p.Wait()
	})
}
