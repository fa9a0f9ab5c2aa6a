package tusdlock_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/tus/tusd/v2/pkg/filestore"
	"github.com/tus/tusd/v2/pkg/handler"
	"golang.org/x/exp/slog"

	tusdlock "github.com/etcdlock/locks/adapters/tusd"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/session"
)

func Example() {
	cluster, err := embedtest.Open()
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	client, err := cluster.NewClient()
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	sessions := session.Keep(client)
	defer sessions.Close(context.Background())
	shared, err := os.MkdirTemp("", "uploads") // on a file system that all servers share
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(shared) }()

	composer := handler.NewStoreComposer()
	filestore.New(shared).UseIn(composer)
	tusdlock.New(sessions).UseIn(composer)
	uploads, err := handler.NewHandler(handler.Config{
		StoreComposer: composer, BasePath: "/files/", Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(http.StripPrefix("/files/", uploads))
	defer server.Close()

	request, err := http.NewRequest("POST", server.URL+"/files/", nil)
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Tus-Resumable", "1.0.0")
	request.Header.Set("Upload-Length", "1000")
	answer, err := server.Client().Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	fmt.Println(answer.Status)
	// Output:
	// 201 Created
}
