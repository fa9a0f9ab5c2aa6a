package sqlfence_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
	"github.com/etcdlock/locks/sqlfence"
)

// put sends a request with the token of a hold, and prints the answer's status.
func put(url string, h *etcdlock.Hold) {
	r, err := http.NewRequest(http.MethodPut, url, nil)
	if err != nil {
		log.Fatal(err)
	}
	r.Header.Set(sqlfence.TokenHeader, fmt.Sprint(h.Token()))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		log.Fatal(err)
	}
	_ = answer.Body.Close()
	fmt.Println(answer.Status)
}

// A holder that has been replaced is refused by the service that it writes to.
func ExampleHandler() {
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

	var orders etcdlock.Fence
	service := httptest.NewServer(sqlfence.Handler(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Println("written") }),
		func(*http.Request) *etcdlock.Fence { return &orders },
	))
	defer service.Close()
	defer http.DefaultClient.CloseIdleConnections()

	lock := etcdlock.NewMutex(sessions, "orders")
	first, err := lock.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	put(service.URL, first)
	if err := first.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	second, err := lock.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	put(service.URL, second)
	put(service.URL, first) // late
	if err := second.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// written
	// 200 OK
	// written
	// 200 OK
	// 409 Conflict
}
