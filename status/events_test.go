package status_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
	"github.com/etcdlock/locks/status"
)

func TestARowComesWithTheGrantAndGoesWithTheRelease(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	s := serve(t, client)
	all, orders, others := s.events(""), s.events("?q=ORD"), s.events("?q=other")
	all.shows("Nobody holds a lock here")
	sessions := session.Keep(client)
	t.Cleanup(func() { _ = sessions.Close(context.Background()) })
	h, err := etcdlock.NewMutex(sessions, "orders", etcdlock.WithLabel("my label")).Lock(within(t))
	require.NoError(t, err)
	all.shows("my label")
	orders.shows("my label")
	one := s.events("?name=orders")
	one.shows("my label")
	put(t, client, "other", entry{program: "p", host: "h"})
	others.shows(">other<")
	require.NotContains(t, others.html(), "my label")
	require.NoError(t, h.Unlock(within(t)))
	all.hides("my label")
	orders.shows("No lock has “ORD” in its name")
	one.shows("It is free")
	all.shows(">other<")
}

// An event has what has changed, and no more.
func TestEventsHaveOnlyWhatHasChanged(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	for i := range 100 {
		put(t, client, fmt.Sprintf("lock-%02d", i), entry{program: "p", host: "h"})
	}
	events := serve(t, client).events("")
	events.shows("lock-99")
	id := events.order[51]
	require.Contains(t, events.rows[id], "lock-51")
	remove(t, client, "lock-50")
	put(t, client, "lock-51", entry{program: "q", host: "h"})
	events.until("lock-50 is gone and lock-51 waited for", func(html string) bool {
		require.LessOrEqual(t, strings.Count(events.last, "<tr"), 1+99*(1/events.messages)) // the first has all
		return !strings.Contains(html, "lock-50<") && strings.Contains(html, "waiting")
	})
	require.Len(t, events.order, 99)
	require.Equal(t, id, events.order[0], "a lock that is waited for comes first, in the same row")
	require.Contains(t, events.rows[id], "lock-51")
}

// gate is a response whose viewer takes an event when it is told to.
type gate struct {
	http.ResponseWriter
	pass  chan struct{} // closed when the viewer takes everything
	wrote chan struct{} // closed when the viewer has been given something
	once  sync.Once
	to    io.Writer
}

func (g *gate) Write(b []byte) (int, error) {
	g.once.Do(func() { close(g.wrote) })
	<-g.pass
	return g.to.Write(b)
}

func (g *gate) Flush() {}

func TestASlowViewerGetsTheLatestStateAndNoBacklog(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	put(t, client, "state-0", entry{program: "p", host: "h"})
	s := serve(t, client)
	fast := s.events("")
	fast.shows("state-0")

	reader, writer := io.Pipe()
	g := &gate{ResponseWriter: httptest.NewRecorder(), pass: make(chan struct{}), wrote: make(chan struct{}), to: writer}
	ctx, stop := context.WithCancel(within(t))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.page.ServeHTTP(g, httptest.NewRequest(http.MethodGet, "/events", nil).WithContext(ctx))
	}()
	<-g.wrote
	for i := range 6 {
		remove(t, client, fmt.Sprintf("state-%d", i))
		put(t, client, fmt.Sprintf("state-%d", i+1), entry{program: "p", host: "h"})
		fast.until("the next state", func(html string) bool {
			return strings.Contains(html, fmt.Sprintf("state-%d<", i+1)) && !strings.Contains(html, fmt.Sprintf("state-%d<", i))
		})
	}
	close(g.pass)
	slow := newStream(t, reader, stop)
	require.NoError(t, slow.next())
	require.Contains(t, slow.html(), "state-0<", "what it was given first")
	require.NoError(t, slow.next())
	require.Contains(t, slow.html(), "state-6<", "then the latest")
	require.NotContains(t, slow.html(), "state-0<")
	stop()
	go func() { _, _ = io.Copy(io.Discard, reader) }()
	<-ended
	require.NoError(t, writer.Close())
}

func TestFiftyViewersCostOneWatch(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	put(t, client, "orders", entry{program: "p", host: "h"})
	s := serve(t, cluster.Client(t), status.WithLinger(time.Second))
	watches, reads := cluster.Calls("Watch"), cluster.Calls("Range")
	var streams []*stream
	for range 50 {
		streams = append(streams, s.events(""))
		s.body("/")
	}
	for i := range 3 {
		put(t, client, fmt.Sprint("next-", i), entry{program: "p", host: "h"})
		for _, e := range streams {
			e.shows(fmt.Sprint("next-", i))
		}
	}
	require.LessOrEqual(t, cluster.Calls("Watch")-watches, int64(2), "one, or another one after a recheck")
	require.Less(t, cluster.Calls("Range")-reads, int64(50))
	require.True(t, s.page.Following())
	for _, e := range streams[1:] {
		e.stop()
	}
	put(t, client, "one is left", entry{program: "p", host: "h"})
	streams[0].shows("one is left")
	streams[0].stop()
	require.Eventually(t, func() bool { return !s.page.Following() }, patience, 10*time.Millisecond, "nobody looks")
	put(t, client, "after a rest", entry{program: "p", host: "h"})
	require.Contains(t, s.body("/"), "after a rest")
}

func TestAViewerThatComesBackSoonFindsTheSameFollow(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	s := serve(t, cluster.Client(t))
	s.body("/")
	watches := cluster.Calls("Watch")
	for range 5 {
		s.body("/")
	}
	require.LessOrEqual(t, cluster.Calls("Watch")-watches, int64(1), "the first watch may come a moment later")
	require.True(t, s.page.Following())
}

func TestAtMostAThousandRows(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	for i := 0; i < 1200; i += 100 {
		var puts []clientv3.Op
		for j := i; j < i+100; j++ {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("etcdlock/lock-%04d/x1-0", j), `{"host":"h","program":"p"}`))
		}
		_, err := client.Txn(within(t)).Then(puts...).Commit()
		require.NoError(t, err)
	}
	s := serve(t, client)
	page := s.body("/")
	require.Equal(t, 1000, strings.Count(page, "<tr id="))
	require.Contains(t, page, "1000 of 1200 locks are shown")
	require.NotContains(t, page, "lock-1199")
	require.Contains(t, s.body("/?q=lock-1199"), ">lock-1199<")
	events := s.events("")
	events.shows("1000 of 1200 locks are shown")
	require.Len(t, events.order, 1000)
	put(t, client, "lock-1100", entry{program: "waits", host: "h"})
	events.shows("lock-1100")
	require.Len(t, events.order, 1000)
	require.Equal(t, 1200, strings.Count(s.body("/api/"), `"name"`))
}

func TestCloseEndsStreamsAndLaterRequests(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	put(t, client, "orders", entry{program: "p", host: "h"})
	s := serve(t, client)
	all, one := s.events(""), s.events("?name=orders")
	all.shows("orders")
	one.shows("holds")
	s.page.Close()
	s.page.Close()
	for _, e := range []*stream{all, one} {
		for e.next() == nil {
		}
	}
	for _, path := range []string{"/", "/lock?name=orders", "/events", "/api/", "/api/lock?name=orders"} {
		response, _ := s.get(path)
		require.Equal(t, http.StatusServiceUnavailable, response.StatusCode, path)
	}
	status.New(client).Close()
}

// pipes is a listener whose connections have no buffer: a write waits until the viewer reads.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

func TestCloseEndsAWriteThatIsBlocked(t *testing.T) {
	t.Parallel()
	page := status.New(embedtest.Start(t).Client(t), status.WithWriteLimit(time.Hour))
	listener := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: page}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	viewer, conn := net.Pipe()
	listener.conns <- conn
	_, err := io.WriteString(viewer, "GET /events HTTP/1.1\r\nHost: page\r\n\r\n")
	require.NoError(t, err)
	_, err = io.ReadFull(viewer, make([]byte, 1)) // the rest of the event is not read
	require.NoError(t, err)
	page.Close()
	require.NoError(t, server.Close())
	require.ErrorIs(t, <-served, http.ErrServerClosed)
	require.NoError(t, viewer.Close())
}
