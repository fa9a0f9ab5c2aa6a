package tusdlock_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tus/tusd/v2/pkg/handler"
	clientv3 "go.etcd.io/etcd/client/v3"

	tusdlock "github.com/etcdlock/locks/adapters/tusd"
	"github.com/etcdlock/locks/embedtest"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const size = 1 << 20

// content is what is uploaded: each position has its own text, so that no part can stand in for another.
var content = func() string {
	var b strings.Builder
	for b.Len() < size {
		fmt.Fprintf(&b, "%07d\n", b.Len())
	}
	return b.String()
}()

func keep(t *testing.T, client *clientv3.Client) *session.Keeper {
	k := session.Keep(client, session.WithTTL(2*time.Second))
	t.Cleanup(func() { _ = k.Close(context.Background()) })
	return k
}

func newServer(t *testing.T, dir string, client *clientv3.Client) *httptest.Server {
	s, err := serve(dir, keep(t, client))
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// browser is a client of tusd.
type browser struct {
	t    *testing.T
	http *http.Client
	dir  string
}

func newBrowser(t *testing.T, dir string) *browser {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &browser{t: t, http: &http.Client{Transport: transport}, dir: dir}
}

func (b *browser) do(method, url string, body io.Reader, header ...string) (*http.Response, string, error) {
	r, err := http.NewRequest(method, url, body)
	require.NoError(b.t, err)
	r.Header.Set("Tus-Resumable", "1.0.0")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := b.http.Do(r)
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return answer, string(text), nil
}

// create begins an upload and returns its name.
func (b *browser) create(server string) string {
	answer, text, err := b.do("POST", server+"/files/", nil, "Upload-Length", strconv.Itoa(size))
	require.NoError(b.t, err)
	require.Equal(b.t, http.StatusCreated, answer.StatusCode, text)
	return answer.Header.Get("Location")[strings.LastIndexByte(answer.Header.Get("Location"), '/')+1:]
}

// offset asks a server how much of the upload it has.
func (b *browser) offset(server, id string) int {
	answer, _, err := b.do("HEAD", server+"/files/"+id, nil)
	require.NoError(b.t, err)
	require.Equal(b.t, http.StatusOK, answer.StatusCode)
	n, err := strconv.Atoi(answer.Header.Get("Upload-Offset"))
	require.NoError(b.t, err)
	return n
}

// patch sends body from offset on, and returns the status and the text of the answer.
func (b *browser) patch(server, id string, offset int, body io.Reader) (status int, text string) {
	answer, text, err := b.do("PATCH", server+"/files/"+id, body,
		"Upload-Offset", strconv.Itoa(offset), "Content-Type", "application/offset+octet-stream")
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, text
}

type answer struct {
	status int
	text   string
}

// begin sends the first half of the upload, and then goes on slowly, as long as the server reads. It returns when the
// server has stored the half. The answer of the server follows.
func (b *browser) begin(server, id string, goOn bool) <-chan answer {
	in, out := io.Pipe()
	answers := make(chan answer, 1)
	go func() {
		status, text := b.patch(server, id, 0, in)
		_ = in.CloseWithError(io.ErrClosedPipe)
		answers <- answer{status, text}
	}()
	b.t.Cleanup(func() { _ = out.CloseWithError(io.ErrUnexpectedEOF) })
	_, err := io.WriteString(out, content[:size/2])
	require.NoError(b.t, err)
	require.Eventually(b.t, func() bool { return b.stored(id) >= size/2 }, time.Minute, time.Millisecond)
	go func() {
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for at := size / 2; goOn && at+8 < size && err == nil; at += 8 {
			_, err = io.WriteString(out, content[at:at+8])
			<-ticker.C
		}
	}()
	return answers
}

// requireInterrupted requires that the server has ended a request that was going on. It closes the connection while the
// client sends, so the client may get a reset instead of the answer.
func requireInterrupted(t *testing.T, a answer) {
	t.Helper()
	if a.status != 0 {
		require.Equal(t, http.StatusBadRequest, a.status)
		require.Contains(t, a.text, "ERR_UPLOAD_INTERRUPTED")
	}
}

func (b *browser) stored(id string) int64 {
	info, err := os.Stat(filepath.Join(b.dir, id))
	require.NoError(b.t, err)
	return info.Size()
}

// finish sends the rest to a server, and requires that nothing is missing or twice.
func (b *browser) finish(server, id string, offset int) {
	require.GreaterOrEqual(b.t, offset, size/2)
	status, text := b.patch(server, id, offset, strings.NewReader(content[offset:]))
	require.Equal(b.t, http.StatusNoContent, status, text)
	have, err := os.ReadFile(filepath.Join(b.dir, id))
	require.NoError(b.t, err)
	same := string(have) == content // not printed, since it is large
	require.True(b.t, same, "%d bytes", len(have))
}

// tusd reads the body of a request in one goroutine and closes it in another, without a lock.
func skipWithTheRaceDetector(t *testing.T) {
	if raceDetector {
		t.Skip("tusd itself has a data race when an upload is interrupted")
	}
}

// The connection to the first server is broken, which that server does not know. The client asks the second how much it
// has, and goes on there.
func TestAnUploadIsResumedAtAnotherServer(t *testing.T) {
	skipWithTheRaceDetector(t)
	t.Parallel()
	cluster := embedtest.Start(t)
	b := newBrowser(t, t.TempDir())
	first, second := newServer(t, b.dir, cluster.Client(t)), newServer(t, b.dir, cluster.Client(t))
	id := b.create(first.URL)
	answers := b.begin(first.URL, id, true)
	offset := b.offset(second.URL, id)
	requireInterrupted(t, <-answers)
	b.finish(second.URL, id, offset)
}

func TestAConcurrentUploadTakesOver(t *testing.T) {
	skipWithTheRaceDetector(t)
	t.Parallel()
	cluster := embedtest.Start(t)
	b := newBrowser(t, t.TempDir())
	first, second := newServer(t, b.dir, cluster.Client(t)), newServer(t, b.dir, cluster.Client(t))
	id := b.create(first.URL)
	answers := b.begin(first.URL, id, true)
	status, text := b.patch(second.URL, id, 0, strings.NewReader(content))
	require.Equal(t, http.StatusConflict, status, "the first has stored something meanwhile: %s", text)
	requireInterrupted(t, <-answers)

	answers = b.begin(first.URL, b.create(first.URL), false) // another upload is not disturbed
	b.finish(second.URL, id, b.offset(first.URL, id))
	require.Empty(t, answers)
}

func TestABlackHoleStopsTheUploadBeforeTheNextBegins(t *testing.T) {
	skipWithTheRaceDetector(t)
	t.Parallel()
	cluster := embedtest.Start(t)
	b := newBrowser(t, t.TempDir())
	client, link := cluster.Link(t)
	first, second := newServer(t, b.dir, client), newServer(t, b.dir, cluster.Client(t))
	id := b.create(first.URL)
	answers := b.begin(first.URL, id, true)
	link.Blackhole()
	offset := b.offset(second.URL, id)
	require.EqualValues(t, offset, b.stored(id))
	requireInterrupted(t, <-answers)
	b.finish(second.URL, id, offset)
	link.Heal()
}

func TestARemovedKeyStopsTheUpload(t *testing.T) {
	skipWithTheRaceDetector(t)
	t.Parallel()
	cluster := embedtest.Start(t)
	client := cluster.Client(t)
	b := newBrowser(t, t.TempDir())
	first := newServer(t, b.dir, client)
	id := b.create(first.URL)
	answers := b.begin(first.URL, id, true)
	queue, err := etcdlock.Inspect(t.Context(), client, id)
	require.NoError(t, err)
	require.NoError(t, etcdlock.ForceRelease(t.Context(), client, queue.Places[0].Key, queue.Places[0].Token))
	requireInterrupted(t, <-answers)
	b.finish(first.URL, id, b.offset(first.URL, id))
}

func TestAnUploadOutlivesItsServer(t *testing.T) {
	skipWithTheRaceDetector(t)
	t.Parallel()
	cluster := embedtest.Start(t)
	b := newBrowser(t, t.TempDir())
	process, first := startProcess(t, b.dir, cluster.Endpoints())
	second := newServer(t, b.dir, cluster.Client(t))
	id := b.create(first)
	answers := b.begin(first, id, true)
	process.Kill()
	require.Zero(t, (<-answers).status)
	b.finish(second.URL, id, b.offset(second.URL, id))
}

// A server is suspended for longer than its TTL. When it wakes up it stops the upload that another has finished.
func TestASuspendedServerStopsItsUpload(t *testing.T) {
	skipWithTheRaceDetector(t)
	t.Parallel()
	cluster := embedtest.Start(t)
	b := newBrowser(t, t.TempDir())
	process, first := startProcess(t, b.dir, cluster.Endpoints())
	second := newServer(t, b.dir, cluster.Client(t))
	id := b.create(first)
	answers := b.begin(first, id, false)
	require.NoError(t, process.Process.Signal(syscall.SIGSTOP))
	offset := b.offset(second.URL, id)
	require.NoError(t, process.Process.Signal(syscall.SIGCONT))
	requireInterrupted(t, <-answers)
	b.finish(second.URL, id, offset)
}

// The tests of tusd's own lockers, in their order.
func TestTusdsOwnTestsOfALocker(t *testing.T) {
	t.Parallel()
	locker := tusdlock.New(keep(t, embedtest.Start(t).Client(t)))
	newLock := func(t *testing.T) handler.Lock {
		l, err := locker.NewLock(t.Name())
		require.NoError(t, err)
		return l
	}
	never := func() { panic("must not be called") }
	t.Run("LockAndUnlock", func(t *testing.T) {
		l := newLock(t)
		require.NoError(t, l.Lock(t.Context(), never))
		require.NoError(t, l.Unlock())
	})
	t.Run("Timeout", func(t *testing.T) {
		requested := make(chan struct{})
		first := newLock(t)
		require.NoError(t, first.Lock(t.Context(), func() { close(requested) }))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		require.Equal(t, handler.ErrLockTimeout, newLock(t).Lock(ctx, never))
		<-requested
		require.NoError(t, first.Unlock())
	})
	t.Run("RequestUnlock", func(t *testing.T) {
		first, second := newLock(t), newLock(t)
		unlocked := make(chan error, 1)
		require.NoError(t, first.Lock(t.Context(), func() { unlocked <- first.Unlock() }))
		require.NoError(t, second.Lock(t.Context(), never))
		require.NoError(t, <-unlocked)
		require.NoError(t, second.Unlock())
	})
}

func TestErrorsOfALock(t *testing.T) {
	t.Parallel()
	client := embedtest.Start(t).Client(t)
	keeper := session.Keep(client)
	locker := tusdlock.New(keeper)
	nameless, err := locker.NewLock("")
	require.NoError(t, err)
	require.ErrorIs(t, nameless.Lock(t.Context(), nil), etcdlock.ErrInvalidName)
	l, err := locker.NewLock("upload")
	require.NoError(t, err)
	require.ErrorIs(t, l.Unlock(), etcdlock.ErrNotHeld)
	requested := make(chan struct{})
	require.NoError(t, l.Lock(t.Context(), func() { close(requested) }))
	require.NoError(t, keeper.Close(t.Context()))
	<-requested
	require.ErrorIs(t, l.Unlock(), etcdlock.ErrClosed)
	require.ErrorIs(t, l.Lock(t.Context(), nil), etcdlock.ErrClosed)
}
