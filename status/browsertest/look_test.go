package browsertest

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
	"github.com/etcdlock/locks/status"
)

var screenshots = flag.String("screenshots", "", "`directory` to write pictures of the page to, as in docs/")

// fill makes locks of all kinds and states.
func fill(t *testing.T, client *clientv3.Client) {
	t.Helper()
	const m, h = time.Minute, time.Hour
	put(t, client, "orders/import", entry{"importer", "node-3", "supplier 17", 41 * m}, entry{"importer", "node-1", "", 38 * m},
		entry{"importer", "node-2", "", 12 * m}, entry{"importer", "node-5", "", 42 * time.Second})
	put(t, client, "billing/close-month", entry{"billing", "node-2", "2026-11", 6 * m}, entry{"billing", "node-4", "2026-11", 3*m + 11*time.Second})
	put(t, client, "search/reindex", entry{"indexer", "node-7", "products", 4 * m}, entry{"indexer", "node-1", "reviews", 21 * time.Second})
	put(t, client, "stock/eu-west", entry{"stock", "node-1", "", 900 * time.Millisecond}, entry{"stock", "node-4", "", 0}, entry{"stock", "node-6", "", 0})
	put(t, client, "backup/nightly", entry{"restic", "node-9", "", 2*h + 13*m})
	put(t, client, "certificates/shop.example.com", entry{"caddy", "edge-2", "", 14 * time.Second})
	put(t, client, "migrations", entry{"goose", "node-4", "release 412", 47 * time.Second})
	put(t, client, "reports/daily", entry{"report", "node-6", "", 11 * m})
	sessions, standby := session.Keep(client), session.Keep(client)
	t.Cleanup(func() { _, _ = sessions.Close(context.Background()), standby.Close(context.Background()) })
	uploads := etcdlock.NewSemaphore(sessions, "uploads", 4, etcdlock.WithLabel("customer 8812"))
	for range 3 {
		_, err := uploads.Acquire(t.Context(), 1)
		require.NoError(t, err)
	}
	_, err := etcdlock.NewRWMutex(sessions, "catalogue").RLock(t.Context())
	require.NoError(t, err)
	_, err = etcdlock.NewElection(sessions, "scheduler").Campaign(t.Context(), "node-1:8080")
	require.NoError(t, err)
	standing := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer close(standing)
		_, _ = etcdlock.NewElection(standby, "scheduler").Campaign(ctx, "node-2:8080")
	}()
	t.Cleanup(func() { stop(); <-standing })
	require.NoError(t, etcdlock.Do(t.Context(), etcdlock.NewSemaphore(sessions, "exports", 2),
		func(context.Context, *etcdlock.Hold) error { return nil }))
}

// Pictures are for people to look at.
func TestPictures(t *testing.T) {
	if *screenshots == "" {
		t.Skip("no -screenshots")
	}
	program := os.Args[0]
	os.Args[0] = "photos" // what is shown of this process
	defer func() { os.Args[0] = program }()
	cluster := embedtest.Start(t)
	client, link := cluster.Link(t)
	fill(t, cluster.Client(t))
	s := serve(t, client, status.WithTitle("Locks of the shop"))
	b := newTab(t)
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		for page, path := range map[string]string{"locks": "/", "lock": "/lock?name=orders%2Fimport"} {
			b.size(1180, 800)
			b.open(s.url() + path)
			b.until(live)
			b.screenshot(filepath.Join(*screenshots, page+"-"+scheme+".png"))
			b.size(390, 844)
			b.screenshot(filepath.Join(*screenshots, page+"-"+scheme+"-phone.png"))
		}
	}
	link.Blackhole()
	b.size(1180, 800)
	b.open(s.url() + "/?q=orders")
	b.until(`document.querySelector('#head').innerText.includes('Etcd does not answer')`)
	b.screenshot(filepath.Join(*screenshots, "away.png"))
	link.Heal()
}

// contrast is the least ratio of a text's luminance to that of its ground, over all texts of the page.
const contrast = `(() => {
	const parse = c => (c.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
	const light = c => { const [r, g, b] = c.slice(0, 3).map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
	const ground = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] !== 0) return c; } };
	let least = 21, where = '';
	for (const e of document.querySelectorAll('body *')) {
		if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.offsetParent) continue;
		const [a, b] = [light(parse(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
		if ((a + .05) / (b + .05) < least) least = (a + .05) / (b + .05), where = e.outerHTML;
	}
	return [least.toFixed(2), where];
})()`

func TestTextsHaveContrast(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	fill(t, client)
	s := serve(t, client)
	b := newTab(t)
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		for _, path := range []string{"/", "/lock?name=orders%2Fimport"} {
			b.open(s.url() + path)
			b.until(live)
			require.True(t, eval[bool](b, `matchMedia('(prefers-color-scheme: `+scheme+`)').matches`))
			least := eval[[]string](b, contrast)
			require.GreaterOrEqual(t, len(least[0]), 4)
			require.GreaterOrEqual(t, number(t, least[0]), 4.5, "WCAG 2 AA; %s in %s", least[1], scheme)
		}
	}
	b.clean()
}

func TestThePageFitsATelephone(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	fill(t, client)
	long := "a-name-without-a-space-that-is-longer-than-a-telephone-is-wide/and-goes-on-and-on-and-on-and-on"
	put(t, client, long, entry{long, long, long, time.Minute}, entry{long, long, long, time.Hour})
	s := serve(t, client)
	b := newTab(t)
	for _, width := range []int64{320, 390, 768, 1180, 2560} {
		b.size(width, 800)
		for _, path := range []string{"/", "/?q=" + long, "/lock?name=" + long} {
			b.open(s.url() + path)
			b.until(live)
			require.Equal(t, width, eval[int64](b, `document.documentElement.scrollWidth`), "no scrolling to the side, at %d", width)
			require.Empty(t, eval[[]string](b, `[...document.querySelectorAll('main *, header *')]
				.filter(e => e.offsetParent && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML)`))
		}
	}
	b.clean()
}
