package browsertest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
	"github.com/etcdlock/locks/status"
)

func TestARowComesWithAGrantAndGoesWithTheRelease(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	s := serve(t, cluster.Client(t))
	b := newTab(t)
	b.open(s.url() + "/")
	b.until(live)
	require.Contains(t, eval[string](b, `document.querySelector('#foot').innerText`), "Nobody holds a lock here")
	sessions := session.Keep(client)
	t.Cleanup(func() { _ = sessions.Close(context.Background()) })
	var comes, goes []time.Duration
	for i := range 5 {
		name := fmt.Sprint("orders-", i)
		h, err := etcdlock.NewMutex(sessions, name).Lock(t.Context())
		require.NoError(t, err)
		granted := time.Now()
		b.until(row(name))
		comes = append(comes, time.Since(granted).Round(time.Millisecond))
		require.NoError(t, h.Unlock(t.Context()))
		released := time.Now()
		b.until("!" + row(name))
		goes = append(goes, time.Since(released).Round(time.Millisecond))
	}
	t.Logf("from a grant to its row: %v; from a release: %v", comes, goes)
	b.clean()
}

func TestHostileTextsStayText(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	hostile := `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>"'`
	put(t, client, hostile, entry{hostile, hostile, hostile, 0})
	s := serve(t, client)
	b := newTab(t)
	for _, path := range []string{"/", "/?q=" + url.QueryEscape(hostile), "/lock?name=" + url.QueryEscape(hostile)} {
		b.open(s.url() + path)
		b.until(live)
		put(t, client, "later/"+hostile, entry{hostile, hostile, hostile, 0}) // and in an event
		b.until(row("later/"+hostile) + ` || location.pathname === '/lock'`)
		require.Equal(t, 0, eval[int](b, `document.querySelectorAll('img, tbody script').length`))
		require.True(t, eval[bool](b, `document.querySelector('tbody .owner b').textContent === `+fmt.Sprintf("%q", hostile)))
		require.NotEqual(t, "owned", eval[string](b, `document.title`))
		remove(t, client, "later/"+hostile)
	}
	b.open(s.url() + "/")
	b.until(live + ` && document.querySelectorAll('tbody tr').length === 1`) // no row is replaced under the click
	require.NoError(t, chromedp.Do(b.ctx, chromedp.Click(`tbody th a`)))
	b.poll(live + ` && location.pathname === '/lock'`)
	require.True(t, eval[bool](b, `document.querySelector('h1').textContent === `+fmt.Sprintf("%q", hostile)))
	b.clean()
}

func TestTheFilterWorksWithAndWithoutScript(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	for i := range 20 {
		put(t, client, fmt.Sprintf("lock-%02d", i), entry{"p", "h", "", 0})
	}
	s := serve(t, client)
	with := newTab(t)
	with.open(s.url() + "/")
	with.until(live + ` && document.querySelectorAll('tbody tr').length === 20`)
	eval[any](with, `window.mine = 'the same document'`)
	require.NoError(t, chromedp.Do(with.ctx, chromedp.KeyEvent("/"), chromedp.KeyEvent("LOCK-1")))
	with.until(`document.querySelectorAll('tbody tr').length === 10 && location.search === '?q=LOCK-1'`)
	remove(t, client, "lock-15")
	with.until(`document.querySelectorAll('tbody tr').length === 9`)
	require.Equal(t, "the same document", eval[string](with, `window.mine`))
	with.clean()

	without := newTab(t)
	_, err := chromedp.Call(without.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	require.NoError(t, err)
	without.open(s.url() + "/")
	// The document loads itself again every ten seconds, also between two looks at it, or keys typed into it.
	without.poll(`document.querySelectorAll('tbody tr').length === 19 && document.querySelector('#live').innerText.includes('as of') &&
		document.querySelector('tbody time').innerText !== ''`)
	without.open(s.url() + "/")
	eval[any](without, `document.querySelector('input').value = 'LOCK-1'; document.querySelector('form').requestSubmit()`)
	without.poll(`location.search === '?q=LOCK-1' && document.querySelectorAll('tbody tr').length === 9`)
	put(t, client, "lock-15", entry{"p", "h", "", 0})
	without.poll(`document.querySelectorAll('tbody tr').length === 10`) // it loads itself again
}

func TestAgesTickAsTheServerWritesThem(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	put(t, client, "orders", entry{"p", "h", "", 0})
	b := newTab(t)
	b.open(serve(t, client).url() + "/")
	b.until(live)
	for seconds, text := range map[int]string{
		0: "0s", 59: "59s", 60: "1m 0s", 3599: "59m 59s", 3600: "1h 0m", 86399: "23h 59m", 86400: "1d 0h", 90061: "1d 1h", 86400 * 400: "400d 0h",
	} {
		require.Equal(t, text, eval[string](b, fmt.Sprintf("age(%d)", seconds)))
	}
	before := eval[string](b, `document.querySelector('tbody time').textContent`)
	b.until(fmt.Sprintf(`document.querySelector('tbody time').textContent !== %q`, before))
	b.clean()
}

func TestARestartOfTheMemberIsSurvived(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	put(t, client, "before", entry{"p", "h", "", 0})
	b := newTab(t)
	b.open(serve(t, cluster.Client(t)).url() + "/")
	b.until(live + " && " + row("before"))
	member := cluster.Members()[0]
	member.Kill()
	b.until(`document.querySelector('#head').innerText.includes('Etcd does not answer')`)
	require.True(t, eval[bool](b, row("before")), "what it has is shown")
	require.NoError(t, member.Restart())
	remove(t, client, "before")
	put(t, client, "after", entry{"p", "h", "", 0})
	b.until(row("after") + " && !" + row("before") + ` && !document.querySelector('#head').innerText.includes('Etcd')`)
	b.clean()
}

func TestARestartOfThePageIsSurvived(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	put(t, client, "before", entry{"p", "h", "", 0})
	first := serve(t, client)
	b := newTab(t)
	b.open(first.url() + "/?q=e")
	b.until(live + " && " + row("before"))
	address := first.server.Listener.Addr().String()
	first.page.Close()
	first.server.Close()
	b.until(`!document.querySelector('#offline').hidden && document.querySelector('#live').className === 'off'`)

	remove(t, client, "before")
	put(t, client, "after", entry{"p", "h", "", 0})
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	page := status.New(client)
	server := &http.Server{Handler: page}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		page.Close()
		_ = server.Close()
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
	b.until(live + " && " + row("after") + " && !" + row("before") + ` && document.querySelector('#offline').hidden`)
	b.clean()
}

func TestFiveTabsShareAWatch(t *testing.T) {
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	s := serve(t, cluster.Client(t))
	watches := cluster.Calls("Watch")
	var tabs []*tab
	for range 5 {
		b := newTab(t)
		b.open(s.url() + "/")
		b.until(live)
		tabs = append(tabs, b)
	}
	put(t, client, "orders", entry{"p", "h", "", 0})
	for _, b := range tabs {
		b.until(row("orders"))
	}
	require.LessOrEqual(t, cluster.Calls("Watch")-watches, int64(2), "one, or another one after a recheck")
}
