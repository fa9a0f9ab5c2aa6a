// Package closer closes clients of etcd that may not close.
package closer

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Close closes a client, and reports whether that has ended within limit. If not, it closes the client's connection,
// and goroutines of the client are left.
//
// A client of etcd 3.7.3 waits for itself if a watch is refused while the client is closed: addSubstream forgets the
// watch, and close waits for it.
func Close(client *clientv3.Client, limit time.Duration) (ended bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = client.Close()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		_ = client.ActiveConnection().Close()
		return false
	}
}
