package proof_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/etcdlock/locks/coord"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const (
	processID       = "COORD_PROOF_ID"
	processEndpoint = "COORD_PROOF_ENDPOINT"
	processShards   = 32
	processTTL      = 2 * time.Second
	processParties  = 2 // at the barrier; there are up to three
)

// runAsChild is for the test that needs other processes: they run this program again.
func runAsChild() bool {
	id := os.Getenv(processID)
	if id == "" {
		return false
	}
	if err := process(id, os.Getenv(processEndpoint)); err != nil {
		panic(err)
	}
	return true
}

// process uses everything until its input ends. Its works write under their guards all the time.
func process(id, endpoint string) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	sessions := session.Keep(client, session.WithTTL(processTTL))
	p := &caller{number: int(id[1] - '0'), ctx: ctx, client: client, sessions: sessions}
	var calling sync.WaitGroup
	calling.Go(func() { callAll(p) })
	s := coord.NewShards(sessions, "x", processShards, coord.WithSettle(200*time.Millisecond))
	err = s.Run(ctx, id, func(ctx context.Context, h *etcdlock.Hold, shard int) error {
		for ctx.Err() == nil {
			_, _ = h.Txn(ctx).Then(clientv3.OpPut(fmt.Sprint("work/", shard), strconv.FormatInt(int64(h.Token()), 10))).Commit()
			time.Sleep(50 * time.Millisecond) //nolint:forbidigo // so that there are not too many
		}
		return nil
	})
	if ctx.Err() == nil {
		return err
	}
	calling.Wait()
	return sessions.Close(context.Background())
}

const (
	onceLine  = "once %d %s\n"
	awaitLine = "await %d %d %d %t\n"
)

// callAll calls the other recipes until p ends, and prints what is to be checked.
func callAll(p *caller) {
	c := &crowd{scene: &scene{client: p.client}}
	once := &onceRun{crowd: c, tell: func(call onceCall) { fmt.Printf(onceLine, call.since, call.value) }}
	barrier := &barrierRun{crowd: c, parties: processParties, tell: func(call awaitCall) {
		fmt.Printf(awaitLine, call.since, call.until, call.generation, call.lost)
	}}
	latch := coord.NewLatch(p.sessions, "x", arrivals)
	var calling sync.WaitGroup
	calling.Go(func() { once.call(p) })
	calling.Go(func() { _ = group(p).Keep(p.ctx, fmt.Sprint(p.number), "") })
	calling.Go(func() {
		for p.ctx.Err() == nil {
			barrier.await(p.ctx, p, callLimit)
			_ = latch.Arrive(p.ctx, fmt.Sprint(rand.IntN(arrivals)))
			if rand.IntN(5) == 0 {
				_ = coord.NewOnce(p.sessions, "x").Reset(p.ctx)
			}
			pause(p.ctx, 50*time.Millisecond)
		}
	})
	calling.Wait()
}

// told is what processes have printed.
type told struct {
	mu     sync.Mutex
	values []onceCall
	calls  []awaitCall
}

// read takes in what a process prints. A call that it was killed in has failed.
func (t *told) read(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var once onceCall
		var await awaitCall
		_, isOnce := fmt.Sscanf(lines.Text()+"\n", onceLine, &once.since, &once.value)
		_, isAwait := fmt.Sscanf(lines.Text()+"\n", awaitLine, &await.since, &await.until, &await.generation, &await.lost)
		t.mu.Lock()
		if isOnce == nil {
			t.values = append(t.values, once)
		}
		if isAwait == nil {
			t.calls = append(t.calls, await)
		}
		t.mu.Unlock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, awaitCall{})
}

// start starts a process that is a member.
func (f *fleet) start(id string, told *told) (*member, *exec.Cmd) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), processID+"="+id, processEndpoint+"="+f.cluster.Endpoints()[0])
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	require.NoError(f.t, err)
	output, err := cmd.StdoutPipe()
	require.NoError(f.t, err)
	require.NoError(f.t, cmd.Start())
	m := &member{id: id, weight: 1, over: make(chan struct{}), cancel: func(error) { _ = input.Close() }}
	f.members = append(f.members, m)
	f.ended.Go(func() {
		defer close(m.over)
		told.read(output)
		_ = cmd.Wait()
	})
	return m, cmd
}

// A process that is stopped for longer than its TTL writes nothing when it goes on, and is a member again. What it has called
// meanwhile returns as promised.
func TestProcessesThatAreStoppedOrKilled(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, processShards, processTTL)
	var told told
	f.start("m1", &told)
	stopped, cmd := f.start("m2", &told)
	killed, victim := f.start("m3", &told)
	f.rest()
	for range 2 {
		require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
		f.drop(stopped)
		f.rest()
		require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
		f.members = append(f.members, stopped)
		f.rest()
	}
	require.NoError(t, victim.Process.Kill())
	f.drop(killed)
	f.rest()
	peers := coord.NewGroup(keepQuiet(t, f.client), "x")
	require.Eventually(t, func() bool {
		members, err := peers.Members(t.Context())
		return err == nil && len(members) == len(f.members)
	}, patience, 20*time.Millisecond, "members have not joined again")
	f.end()
	for _, left := range []string{"once/done", "latch/", "barrier/open/"} {
		_, err := f.client.Delete(t.Context(), "etcdlock/x!/"+left, clientv3.WithPrefix())
		require.NoError(t, err)
	}
	f.leaveNothing()
	f.check(0)

	history := f.history()
	marks, _ := checkOnce(t, history, told.values, 0)
	barrier := &barrierRun{crowd: &crowd{scene: f.scene}, parties: processParties, calls: told.calls}
	generations, _ := barrier.check(history, 0)
	counted := map[string]bool{}
	for _, c := range history {
		for _, e := range c.Events {
			if key := string(e.Kv.Key); e.Type == clientv3.EventTypePut && strings.HasPrefix(key, "etcdlock/x!/latch/") {
				require.False(t, counted[key], "%s was counted again", key)
				counted[key] = true
			}
		}
	}
	require.NotZero(t, marks)
	require.NotZero(t, generations)
	require.NotEmpty(t, counted)
	t.Logf("%d marks, %d values, %d generations, %d calls of Await", marks, len(told.values), generations, len(told.calls))
}
