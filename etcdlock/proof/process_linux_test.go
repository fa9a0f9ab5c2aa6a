package proof_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/etcdlock/locks/embedtest"
)

const (
	processEndpoint = "ETCDLOCK_PROOF_ENDPOINT"
	processSeed     = "ETCDLOCK_PROOF_SEED"
)

// sharedClock is the same in all processes of a machine.
func sharedClock() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // it always exists
	return now.Nano()
}

// report is an operation on its way from one process to another.
type report struct {
	Client       int
	Action       action
	Names        []string
	Token        int64
	Weight, Size int64
	HandedOn     bool
	Call, Return int64
}

// process is what a child does: it works until it is told to stop, or killed, and reports
// each step at once.
func process(number string) error {
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(os.Getenv(processSeed), 10, 64)
	if err != nil {
		return err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Getenv(processEndpoint)}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	h := newHistory(nil)
	h.now = sharedClock
	out := json.NewEncoder(os.Stdout)
	h.tell = func(op porcupine.Operation) {
		s := op.Input.(step)
		_ = out.Encode(report{op.ClientId, s.action, s.names, s.token, s.weight, s.size, s.handedOn, op.Call, op.Return}) // the parent is gone
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	w := newWorker(n, newLife(client, nil), h, nil, seed)
	w.work(ctx, 1)
	for _, wrong := range h.violations() {
		fmt.Fprintln(os.Stderr, wrong)
		err = fmt.Errorf("violations in one process")
	}
	closing, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	_ = w.life.Load().sessions.Close(closing)
	return err
}

// collect gathers what a process reports, until it ends.
func (h *history) collect(out io.Reader) {
	open := map[int64]porcupine.Operation{} // holds by token, which names one in etcd
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var r report
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue // cut off by a kill
		}
		op := porcupine.Operation{
			ClientId: r.Client, Call: r.Call, Return: r.Return,
			Input: step{action: r.Action, names: r.Names, token: r.Token, weight: r.Weight, size: r.Size, handedOn: r.HandedOn},
		}
		switch r.Action {
		case acquire:
			open[r.Token] = op
		case end:
			delete(open, r.Token)
		}
		h.mu.Lock()
		h.steps = append(h.steps, op)
		h.mu.Unlock()
	}
	for _, op := range open { // killed while it held: what it believed last is not known
		s := op.Input.(step)
		s.action = end
		op.Input, op.Call, op.Return = s, op.Return, math.MaxInt64
		h.mu.Lock()
		h.steps = append(h.steps, op)
		h.mu.Unlock()
	}
}

// Processes that are stopped for longer than their TTL, or
// killed, never believe in a lock beside somebody else, nor do they keep it.
func TestProcessesThatAreStoppedOrKilled(t *testing.T) {
	t.Parallel()
	const seed = 7
	cluster := embedtest.Start(t)
	h := newHistory(t)
	random := rand.New(rand.NewPCG(seed, 0))
	var running sync.WaitGroup
	start := func(number int) *child {
		c := &child{Cmd: exec.Command(os.Args[0])}
		c.Env = append(os.Environ(), processNumber+"="+strconv.Itoa(number),
			processEndpoint+"="+cluster.Endpoints()[0], processSeed+"="+strconv.Itoa(seed+number))
		c.Stderr = os.Stderr
		out, err := c.StdoutPipe()
		require.NoError(t, err)
		c.stop, err = c.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, c.Start())
		running.Go(func() {
			h.collect(out)
			c.result = c.Wait()
		})
		return c
	}
	children := make([]*child, 5)
	for i := range children {
		children[i] = start(i)
	}
	for round := range 4 {
		wait(t.Context(), time.Duration(200+random.IntN(400))*time.Millisecond)
		stopped, killed := random.IntN(len(children)), random.IntN(len(children))
		require.NoError(t, children[stopped].Process.Signal(syscall.SIGSTOP))
		if killed != stopped {
			require.NoError(t, children[killed].Process.Kill())
			children[killed] = start(len(children) + round)
		}
		wait(t.Context(), ttl+ttl/4)
		require.NoError(t, children[stopped].Process.Signal(syscall.SIGCONT))
	}
	for _, c := range children {
		require.NoError(t, c.stop.Close())
	}
	running.Wait()
	for _, c := range children {
		require.NoError(t, c.result, "a process that was not killed")
	}
	require.NotEqual(t, porcupine.Illegal, h.explained(time.Minute))
	require.NotZero(t, h.count(acquire))
	t.Logf("%d grants in %d processes", h.count(acquire), len(children)+4)
}

// child is another process, which ends when stop is closed.
type child struct {
	*exec.Cmd
	stop   io.Closer
	result error
}

func (h *history) count(a action) (n int) {
	for _, op := range h.steps {
		if op.Input.(step).action == a {
			n++
		}
	}
	return n
}
