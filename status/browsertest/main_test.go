package browsertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// patience bounds what must happen at some time. Nothing is measured by it.
const patience = 60 * time.Second

var (
	browser     context.Context // of chromium; nil: it was not started
	browserOnce sync.Once
	stopBrowser = func() {}
)

// live is true when the page is up to date.
const live = `document.querySelector('#live').className === 'on'`

// row is true when a lock of that name is shown.
func row(name string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('tbody th a')].some(a => a.textContent === %q)`, name)
}

func TestMain(m *testing.M) {
	code := m.Run()
	stopBrowser()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

func startBrowser(t *testing.T) {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not installed")
	}
	browserOnce.Do(func() {
		opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WSURLReadTimeout(patience))
		allocator, stop := chromedp.NewExecAllocator(context.Background(), opts...)
		var end context.CancelFunc
		browser, end = chromedp.NewContext(allocator)
		stopBrowser = func() {
			_ = chromedp.Cancel(browser)
			end()
			stop()
		}
		require.NoError(t, chromedp.Do(browser))
	})
}

// tab is a page in the browser.
type tab struct {
	t   *testing.T
	ctx context.Context
}

// newTab opens an empty tab. In every document of it, violations has those of the content security policy.
func newTab(t *testing.T) *tab {
	t.Helper()
	startBrowser(t)
	ctx, end := chromedp.NewContext(browser)
	t.Cleanup(end)
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	_, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
		window.violations = [];
		document.addEventListener('securitypolicyviolation', e => violations.push(e.effectiveDirective + ' ' + e.blockedURI));`})
	require.NoError(t, err)
	return b
}

func (b *tab) open(url string) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, chromedp.Navigate(url)))
}

// size sets the size of the window.
func (b *tab) size(width, height int64) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b.ctx, chromedp.EmulateViewport(width, height)))
}

// scheme is light or dark.
func (b *tab) scheme(name string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	})
	require.NoError(b.t, err)
}

// eval returns the value of an expression.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	require.NoError(b.t, err, expression)
	return value
}

// until waits until an expression is true. It looks whenever the document changes.
func (b *tab) until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`new Promise(done => {
		const look = () => { if (`+expression+`) { observer.disconnect(); done(true); } };
		const observer = new MutationObserver(look);
		observer.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
		look();
	})`, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Log(eval[string](b, "document.body.innerText"))
	}
	require.NoError(b.t, err, expression)
}

// poll waits until an expression is true, across documents and without script in them.
func (b *tab) poll(expression string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		is, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](expression))
		return err == nil && is // it fails while a document is loaded
	}, patience, 20*time.Millisecond, expression)
}

// clean requires that nothing has violated the content security policy.
func (b *tab) clean() {
	b.t.Helper()
	require.Empty(b.t, eval[[]string](b, `window.violations`))
}

func (b *tab) screenshot(file string) {
	b.t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(file, png, 0o600))
}
