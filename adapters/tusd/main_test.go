package tusdlock_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tus/tusd/v2/pkg/filestore"
	"github.com/tus/tusd/v2/pkg/handler"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"golang.org/x/exp/slog"

	tusdlock "github.com/etcdlock/locks/adapters/tusd"
	"github.com/etcdlock/locks/session"
)

var raceDetector bool // set if the tests run with it

const roleVariable = "TUSDLOCK_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		if err := serverProcess(); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	// tusd keeps the context of a request for GracefulRequestCompletionTimeout after it.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/tus/tusd/v2/pkg/handler.newDelayedContext.func1"))
}

// serve starts a tusd server. All servers of a test share the directory.
func serve(dir string, src session.Source) (*httptest.Server, error) {
	composer := handler.NewStoreComposer()
	filestore.New(dir).UseIn(composer)
	tusdlock.New(src).UseIn(composer)
	h, err := handler.NewHandler(handler.Config{
		StoreComposer: composer, BasePath: "/files/", Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		GracefulRequestCompletionTimeout: 100 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	return httptest.NewServer(http.StripPrefix("/files/", h)), nil
}

// serverProcess is a server in a process of its own, until its standard input ends.
func serverProcess() error {
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(os.Getenv("ENDPOINTS"), ","), Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	sessions := session.Keep(client, session.WithTTL(2*time.Second))
	defer sessions.Close(context.Background())
	s, err := serve(os.Getenv("DIR"), sessions)
	if err != nil {
		return err
	}
	fmt.Println(s.URL)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func startProcess(t *testing.T, dir string, endpoints []string) (p *os.Process, url string) {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), roleVariable+"=server", "DIR="+dir, "ENDPOINTS="+strings.Join(endpoints, ","))
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	return c.Process, lines.Text()
}
