package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"
)

// process is a server in a process of its own, with a directory that goes with it.
type process struct {
	dir    string
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended
	output lockedBuffer

	closing sync.Once
}

// startProcess starts a command that is made with a fresh directory. It is killed when
// this process ends in whatever way, where the system can do that.
func startProcess(command func(dir string) (*exec.Cmd, error)) (*process, error) {
	dir, err := os.MkdirTemp("", "lockbench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for a server: %w", err)
	}
	cmd, err := command(dir)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	p := &process{dir: dir, cmd: cmd, exited: make(chan struct{})}
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	endWithUs(cmd)
	if err := cmd.Start(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	go func() {
		_ = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// await calls ready until it returns nil. If it does not, the process is closed.
func (p *process) await(ctx context.Context, ready func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
			continue
		case <-p.exited:
			err = fmt.Errorf("it exited: %s", p.output.tail())
		case <-ctx.Done():
			err = fmt.Errorf("it does not answer: %w: %s", err, p.output.tail())
		}
		_ = p.Close()
		return err
	}
}

// Close kills the process and removes its directory: there is nothing to keep.
func (p *process) Close() (err error) {
	p.closing.Do(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		err = os.RemoveAll(p.dir)
	})
	return err
}

// lockedBuffer keeps what a process writes, which is little.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) tail() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := bytes.TrimSpace(b.buf.Bytes())
	return string(all[max(0, len(all)-500):])
}
