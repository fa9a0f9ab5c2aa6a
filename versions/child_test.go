package versions

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"testing"
	"time"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// What makes this program a process that takes one lock, says so and holds it.
const (
	childPrefix   = "VERSIONS_CHILD_PREFIX" // of the queue
	childEndpoint = "VERSIONS_CHILD_ENDPOINT"
	childTTL      = "VERSIONS_CHILD_TTL" // in seconds
)

// beChild takes the lock and keeps it until it is interrupted, or killed.
func beChild() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	client, err := connect(os.Getenv(childEndpoint))
	check(err)
	ttl, err := strconv.Atoi(os.Getenv(childTTL))
	check(err)
	s, err := session.New(ctx, client, session.WithTTL(time.Duration(ttl)*time.Second))
	check(err)
	h, err := etcdlock.NewMutex(s, os.Getenv(childPrefix), etcdlock.AtPrefix()).Lock(ctx)
	check(err)
	fmt.Println(h.Key())
	<-ctx.Done()
	check(h.Unlock(context.Background()))
	check(s.Close(context.Background()))
}

// child is a command like that, of the same test binary.
func (e *etcd) child(prefix string, ttl time.Duration) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(environment(), childPrefix+"="+prefix, childEndpoint+"="+e.endpoint,
		childTTL+"="+strconv.Itoa(int(ttl/time.Second)))
	return cmd
}

// holder is a process that takes a lock and prints its key as soon as it holds it, as
// child and "etcdctl lock" do.
type holder struct {
	cmd *exec.Cmd
	key <-chan string // closed without a key if it ends without having held
	end <-chan error
}

func startHolder(t *testing.T, cmd *exec.Cmd) (*holder, error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	endWithUs(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	key, end := make(chan string, 1), make(chan error, 1)
	go func() {
		lines := bufio.NewScanner(out)
		if lines.Scan() {
			key <- lines.Text()
		}
		close(key)
		for lines.Scan() { // it may say more, and must not block
		}
		end <- cmd.Wait()
		close(end)
	}()
	h := &holder{cmd, key, end}
	t.Cleanup(h.kill)
	return h, nil
}

// holds waits until the process holds, and returns its key.
func (h *holder) holds(ctx context.Context) (string, error) {
	select {
	case key, ok := <-h.key:
		if !ok {
			return "", errors.New("the process has ended without holding")
		}
		return key, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// interrupt has the process release and end.
func (h *holder) interrupt() error {
	if err := h.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	return <-h.end
}

// kill ends the process without a chance to clean up.
func (h *holder) kill() {
	_ = h.cmd.Process.Kill()
	<-h.end //nolint:errcheck // that of a process that was killed
}
