package status_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
	"github.com/etcdlock/locks/status"
)

// A service shows the locks of its etcd, whether it can take them, and who leads.
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
	ctx := context.Background()
	sessions := session.Keep(client)
	defer sessions.Close(ctx)
	election := etcdlock.NewElection(sessions, "controller")
	if _, err := election.Campaign(ctx, "10.0.0.7:8080"); err != nil {
		log.Fatal(err)
	}

	page := status.New(client, status.WithTitle("Locks of the shop"))
	defer page.Close()
	mux := http.NewServeMux()
	mux.Handle("/debug/locks/", page) // behind what authenticates
	mux.Handle("/readyz", status.Health(sessions))
	mux.Handle("/leader", status.Leader(election))
	server := httptest.NewServer(mux)
	defer server.Close()

	for _, path := range []string{"/readyz", "/debug/locks/"} {
		response, err := http.Get(server.URL + path)
		if err != nil {
			log.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		fmt.Println(response.Status, len(body) > 0)
	}
	http.DefaultClient.CloseIdleConnections()
	// Output:
	// 200 OK true
	// 200 OK true
}
