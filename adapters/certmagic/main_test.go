package certmagiclock_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	certmagiclock "github.com/etcdlock/locks/adapters/certmagic"
	"github.com/etcdlock/locks/session"
)

const roleVariable = "CERTMAGICLOCK_ROLE"

// roles are the processes that tests start of this program.
var roles = map[string]func() error{"authority": authority, "server": server}

func TestMain(m *testing.M) {
	if role := roles[os.Getenv(roleVariable)]; role != nil {
		if err := role(); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// process is one that a test has started. It ends with its standard input.
type process struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func start(t *testing.T, role string, env ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0])}
	p.Env = append(append(os.Environ(), roleVariable+"="+role), env...)
	p.Stderr = os.Stderr
	in, err := p.StdinPipe()
	require.NoError(t, err)
	out, err := p.StdoutPipe()
	require.NoError(t, err)
	p.in, p.out = in, bufio.NewScanner(out)
	require.NoError(t, p.Start())
	t.Cleanup(func() {
		_ = p.in.Close()
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p
}

// line returns the next line that the process prints.
func (p *process) line(t *testing.T) string {
	t.Helper()
	require.True(t, p.out.Scan(), "the process has ended")
	return p.out.Text()
}

func keep(t *testing.T, client *clientv3.Client, opts ...session.Option) *session.Keeper {
	k := session.Keep(client, opts...)
	t.Cleanup(func() { _ = k.Close(context.Background()) })
	return k
}

// storage is what the adapter returns, with the optional interfaces of certmagic.
type storage interface {
	certmagic.Storage
	certmagic.LockLeaseRenewer
	TryLock(ctx context.Context, name string) (bool, error)
}

func newStorage(t *testing.T, client *clientv3.Client, opts ...certmagiclock.Option) storage {
	keeper := keep(t, client, session.WithTTL(2*time.Second))
	return certmagiclock.NewStorage(client, keeper, "certmagic", opts...).(storage)
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
