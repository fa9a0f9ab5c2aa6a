package tusdlock_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/tus/tusd/v2/pkg/filestore"
	"github.com/tus/tusd/v2/pkg/handler"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"golang.org/x/exp/slog"

	tusdlock "github.com/etcdlock/locks/adapters/tusd"
	"github.com/etcdlock/locks/internal/testchild"
	"github.com/etcdlock/locks/session"
)

var raceDetector bool // set if the tests run with it

// serverVariable makes the test binary a server: its directory, and etcd's addresses.
const serverVariable = "TUSDLOCK_SERVER"

func init() {
	testchild.Be(serverVariable, func(arguments []string) error { return serverProcess(arguments[0], arguments[1:]) })
}

func TestMain(m *testing.M) {
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

// serverProcess is a server in a process of its own, until it is killed.
func serverProcess(dir string, endpoints []string) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	s, err := serve(dir, session.Keep(client, session.WithTTL(2*time.Second)))
	if err != nil {
		return err
	}
	fmt.Println(s.URL)
	select {}
}

func startProcess(t *testing.T, dir string, endpoints []string) (p *testchild.Child, url string) {
	t.Helper()
	p = testchild.Start(t, serverVariable, append([]string{dir}, endpoints...)...)
	return p, p.Next(t)
}
