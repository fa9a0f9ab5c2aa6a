package status_test

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
	"github.com/etcdlock/locks/status"
)

func TestLocksThatNeedAttentionComeFirst(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	put(t, client, "a", entry{program: "one", host: "h"})
	put(t, client, "b", entry{program: "one", host: "h"}, entry{program: "two", host: "h", age: time.Second})
	put(t, client, "c/d", entry{program: "one", host: "h", age: 25 * time.Hour}, entry{program: "two", host: "h", age: 3 * time.Minute})
	put(t, client, "e", entry{program: "first of e", host: "h", label: "import"}, entry{program: "two", host: "h", age: 2 * time.Hour}, entry{program: "three", host: "h"})
	sessions := session.Keep(client)
	t.Cleanup(func() { _ = sessions.Close(context.Background()) })
	require.NoError(t, etcdlock.Do(within(t), etcdlock.NewSemaphore(sessions, "f", 7), func(context.Context, *etcdlock.Hold) error { return nil }))
	election := etcdlock.NewElection(sessions, "g")
	_, err := election.Campaign(within(t), "leader of g")
	require.NoError(t, err)
	_, err = client.Put(within(t), "etcdlock/g/l99-0", "a candidate that stands by")
	require.NoError(t, err)

	s := serve(t, client, status.WithTitle("Locks of the shop"))
	page := s.body("/")
	inOrder(t, page, "<title>(1 stuck) Locks of the shop</title>", "<h1>Locks of the shop</h1>", "namespace etcdlock",
		"<b>1</b> stuck", "<b>1</b> slow", "<b>1</b> waiting", "<b>2</b> held", "<b>1</b> free",
		`class="stuck"`, ">e<", "mutex", "first of e", "import", "h</bdi> pid 100", ">2<", "2h 0m",
		`class="slow"`, "lock?name=c%2fd", ">c/d<", "1d 1h", "3m ",
		`class="waiting"`, ">b<",
		`class="held"`, ">a<", `class="held"`, ">g<", "election", "leader of g",
		`class="free"`, ">f<", "semaphore of 7", "nobody")
	require.NotContains(t, page, `role="alert">`, "all is well")

	filtered := s.body("/?q=C%2F")
	require.Contains(t, filtered, ">c/d<")
	require.Contains(t, filtered, `value="C/"`)
	require.NotContains(t, filtered, "first of e")
	require.Contains(t, filtered, "1 of 6 locks")
	require.Contains(t, s.body("/?q=nothing"), "No lock has “nothing” in its name")
	require.Contains(t, serve(t, client, status.WithSlowAfter(24*time.Hour)).body("/"), "<b>0</b> slow")
}

func TestAnEmptyNamespaceSaysSo(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	require.Contains(t, serve(t, client).body("/"), "Nobody holds a lock here")
	_, err := client.Put(within(t), "etcdlock/!/epoch/1", "in no queue")
	require.NoError(t, err)
	s := serve(t, client)
	require.Contains(t, s.body("/"), "Nobody holds a lock here")
	require.JSONEq(t, "[]", s.body("/api/"))
	require.Contains(t, s.body("/lock?name=x"), "It is free")
}

var hostile = []string{
	`<script>document.title='owned'</script>`, `"><img src=x onerror=alert(1)>`, `';alert(1)//`, "line\nbreak", "\u202egnp.exe", "\x1b[2J", "日本", "{{.}}",
}

func TestTextsOfOthersStayText(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	for i, text := range hostile {
		put(t, client, fmt.Sprint(i, text), entry{program: text, host: text, label: text}, entry{program: text, host: text, label: text})
	}
	_, err := client.Put(within(t), "etcdlock/foreign/1", `<b>`+strings.Repeat("long ", 1000))
	require.NoError(t, err)
	s := serve(t, client)
	pages := []string{s.body("/"), s.body("/?q=" + url.QueryEscape(hostile[0])), s.body("/?q=" + url.QueryEscape(hostile[1]))}
	for i, text := range hostile {
		pages = append(pages, s.body("/lock?name="+url.QueryEscape(fmt.Sprint(i, text))))
	}
	all, one := s.events(""), s.events("?name="+url.QueryEscape("0"+hostile[0]))
	all.shows("foreign")
	one.shows("waits 1")
	for _, page := range append(pages, all.html(), one.html()) {
		require.NotContains(t, page, "<script>document")
		require.NotContains(t, page, "<img")
		require.NotContains(t, page, "\u202e")
		require.NotContains(t, page, "\x1b")
		require.NotContains(t, page, strings.Repeat("long ", 100))
		require.NotRegexp(t, `href="?javascript:`, page)
		for _, tag := range regexp.MustCompile(`<[^>]*>`).FindAllString(regexp.MustCompile(`"[^"]*"`).ReplaceAllString(page, `""`), -1) {
			require.NotRegexp(t, `\son\w+=|style=`, tag)
		}
	}
	require.Contains(t, pages[0], "&lt;script&gt;document.title=&#39;owned&#39;&lt;/script&gt;")
	require.Contains(t, pages[0], "日本")
	require.Contains(t, pages[0], "�gnp.exe")
	link := regexp.MustCompile(`href="(lock\?name=[^"]*)"`)
	for _, href := range link.FindAllStringSubmatch(pages[0], -1) {
		require.NotContains(t, s.body("/"+html.UnescapeString(href[1])), "It is free", "the link leads to the lock")
	}
}

func TestThePageCanBeMountedAnywhere(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	put(t, client, "orders", entry{program: "p", host: "h"})
	page := status.New(client)
	t.Cleanup(page.Close)
	mux := http.NewServeMux()
	mux.Handle("/stripped/", http.StripPrefix("/stripped", page))
	mux.Handle("/as/it/is/", page)
	for _, mount := range []string{"/stripped", "/as/it/is"} {
		for path, contains := range map[string]string{
			"/": ">orders<", "/?q=ord": ">orders<", "/lock?name=orders": "holds", "/api/": `"name": "orders"`,
			"/api/lock?name=orders": `"holders"`, "/style.css": "prefers-color-scheme", "/script.js": "EventSource",
		} {
			answer := httptest.NewRecorder()
			mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, mount+path, nil))
			require.Equal(t, http.StatusOK, answer.Code, mount+path)
			require.Contains(t, answer.Body.String(), contains)
			require.Equal(t, "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'", answer.Header().Get("Content-Security-Policy"))
			require.Equal(t, "nosniff", answer.Header().Get("X-Content-Type-Options"))
			require.NotRegexp(t, `(href|src|action)="/`, answer.Body.String(), "links are relative")
		}
		for _, path := range []string{"/favicon.ico", "/api/events", "/api/style.css", "/page.html"} {
			answer := httptest.NewRecorder()
			mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, mount+path, nil))
			require.Equal(t, http.StatusNotFound, answer.Code, mount+path)
		}
	}
}

func TestThePageOnlyReads(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	put(t, client, "orders", entry{program: "p", host: "h"})
	before, err := client.Get(within(t), "x")
	require.NoError(t, err)
	s := serve(t, client)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		answer := httptest.NewRecorder()
		s.page.ServeHTTP(answer, httptest.NewRequest(method, "/lock?name=orders", nil))
		require.Equal(t, http.StatusMethodNotAllowed, answer.Code)
		require.Equal(t, "GET, HEAD", answer.Header().Get("Allow"))
	}
	for _, path := range []string{"/", "/lock?name=orders", "/events", "/api/", "/style.css"} {
		response, err := s.server.Client().Head(s.server.URL + path)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode)
		require.NoError(t, response.Body.Close())
	}
	s.body("/")
	s.body("/lock?name=orders")
	s.events("").shows("orders")
	after, err := client.Get(within(t), "x")
	require.NoError(t, err)
	require.Equal(t, before.Header.Revision, after.Header.Revision)
}

func TestAssetsAreCachedByVersion(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	s := serve(t, client)
	assets := regexp.MustCompile(`(?:href|src)="((?:style|script)\.[^"]*)"`).FindAllStringSubmatch(s.body("/"), -1)
	require.Len(t, assets, 2)
	s = serve(t, client)
	for _, asset := range assets {
		response, _ := s.get("/" + asset[1])
		require.Contains(t, response.Header.Get("Cache-Control"), "immutable")
		response, _ = s.get("/" + asset[1] + "0")
		require.Equal(t, "no-store", response.Header.Get("Cache-Control"))
	}
	require.False(t, s.page.Following(), "nobody looks at locks")
}

// What is outside the namespace may be secret.
func TestOnlyLocksBelowTheRootAreShown(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	for _, key := range []string{"secret/a/1", "shop/orders/1", "etcdlock/orders/1", "shopping/a/1"} {
		_, err := client.Put(within(t), key, "value of "+key)
		require.NoError(t, err)
	}
	for what, tt := range map[string]struct {
		opts  []status.Option
		names []string
	}{
		"by default":      {nil, []string{"orders"}},
		"a namespace":     {[]status.Option{status.WithNamespace("shop")}, []string{"orders"}},
		"below a prefix":  {[]status.Option{status.WithNamespace("shop"), status.AtPrefix()}, []string{"shop/orders"}},
		"the whole store": {[]status.Option{status.AtPrefix()}, []string{"etcdlock/orders", "secret/a", "shop/orders", "shopping/a"}},
	} {
		t.Run(what, func(t *testing.T) {
			s := serve(t, client, tt.opts...)
			page := s.body("/")
			var links []string
			for _, name := range tt.names {
				links = append(links, "<bdi>"+name+"</bdi>")
				require.Contains(t, s.body("/lock?name="+url.QueryEscape(name)), "holds")
			}
			inOrder(t, page, links...)
			require.Equal(t, len(tt.names), strings.Count(page, "<tr id="))
			if what != "the whole store" {
				for _, path := range []string{"/", "/lock?name=secret/a", "/lock?name=../secret/a", "/api/", "/api/lock?name=secret/a"} {
					require.NotContains(t, s.body(path), "value of secret")
				}
			}
		})
	}
}

func TestThePageSaysThatEtcdRefuses(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client, link := cluster.Link(t)
	put(t, client, "orders", entry{program: "p", host: "h"})
	fault := cluster.Refuse("Range", rpctypes.ErrGRPCPermissionDenied)
	s := serve(t, client)
	page := s.body("/")
	require.Contains(t, page, "<title>(!) Locks</title>")
	require.Contains(t, page, "Etcd cannot be read")
	require.Contains(t, page, "permission denied")
	response, _ := s.get("/api/")
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	events := s.events("")
	events.shows("permission denied")
	fault.Heal()
	events.shows(">orders<")
	events.hides("permission denied")
	s.body("/api/")

	fault = cluster.Refuse("Watch", rpctypes.ErrGRPCPermissionDenied)
	link.Cut() // another watch has to be made
	link.Heal()
	events.shows("permission denied")
	fault.Heal()
	events.hides("permission denied") // although no lock changes

	require.Contains(t, serve(t, client, status.WithNamespace("\xfe")).body("/"), "Etcd cannot be read", "a mistake in the options")
}

func TestThePageSaysThatEtcdIsAway(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client, link := cluster.Link(t)
	put(t, cluster.Client(t), "orders", entry{program: "p", host: "h"}, entry{program: "q", host: "h"})
	s := serve(t, client)
	all, one := s.events(""), s.events("?name=orders")
	all.shows(">orders<")
	one.shows("waits 1")
	link.Blackhole()
	all.shows("Etcd does not answer")
	all.shows(">orders<") // it shows what it has
	require.Equal(t, "(!) Locks", all.title)
	one.shows("Etcd does not answer")
	one.shows("waits 1")
	page := s.body("/")
	inOrder(t, page, "Etcd does not answer", "What you see is", "old", ">orders<")
	for _, path := range []string{"/api/", "/api/lock?name=orders"} {
		response, _ := s.get(path)
		require.Equal(t, http.StatusServiceUnavailable, response.StatusCode)
	}
	link.Heal()
	all.hides("Etcd does not answer")
	one.hides("Etcd does not answer")
	one.hides("cannot be read")
	require.Contains(t, one.html(), "waits 1")
	remove(t, cluster.Client(t), "orders")
	all.shows("Nobody holds a lock here")
	one.shows("It is free")

	away, link := cluster.Link(t)
	link.Blackhole()
	require.Contains(t, serve(t, away).body("/"), "Etcd does not answer")
	link.Heal() // so that closing need not wait
}

func TestThePageSaysThatItsClientIsClosed(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client, err := cluster.NewClient()
	require.NoError(t, err)
	put(t, client, "orders", entry{program: "p", host: "h"})
	s := serve(t, client)
	events := s.events("")
	events.shows(">orders<")
	require.NoError(t, client.Close())
	events.shows("the client was closed")
	require.Contains(t, s.body("/"), "the client was closed")
}

func TestNewRefusesWhatIsMissing(t *testing.T) {
	t.Parallel()
	for _, call := range []func(){
		func() { status.New(nil) },
		func() { status.New(new(clientv3.Client), nil) },
		func() { status.WithSlowAfter(0) },
		func() { status.Health(nil) },
		func() { status.Leader(nil) },
	} {
		require.Panics(t, call)
	}
}
