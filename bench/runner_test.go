package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stuck is a client, a session and a locker whose Lock knows no context: only closing the
// client ends it.
type stuck struct{ closed chan struct{} }

func (s stuck) Session(context.Context, time.Duration) (Session, error) { return stuckSession(s), nil }
func (s stuck) Blackhole()                                              {}
func (s stuck) Close()                                                  { close(s.closed) }

type stuckSession stuck

func (s stuckSession) Locker(string) Locker  { return s }
func (s stuckSession) Close(context.Context) {}

func (s stuckSession) Lock(context.Context) (Hold, error) {
	<-s.closed
	return Hold{}, errors.New("closed")
}

func (stuckSession) TryLock(context.Context) (Hold, error) { return Hold{}, errNoTry }

func stuckTarget() target {
	return target{Peer{Name: "stuck", Kind: Mutex, Connect: func(context.Context, Server, bool) (Client, error) {
		return stuck{make(chan struct{})}, nil
	}}, fixedServer{"nowhere", Memory, layout{}}}
}

func TestWhatHangsIsReportedAndNotTriedWithMore(t *testing.T) {
	r := &runner{options: options{rounds: 2, slice: time.Millisecond, timeout: 50 * time.Millisecond}, targets: []target{stuckTarget()}, progress: io.Discard}
	rows := r.run(t.Context(), []workload{hotWorkload([]int{2, 8})})
	require.Len(t, rows, 2)
	require.Equal(t, "not finished in 50ms", rows[0].trouble)
	require.Equal(t, "not run, since 2 did not finish", rows[1].trouble)
	require.Equal(t, 1, r.cells, "it is measured once")
}

func TestWhatAPeerDoesNotOfferIsNoMistake(t *testing.T) {
	r := &runner{options: options{rounds: 1, timeout: time.Minute}, targets: []target{stuckTarget()}, progress: io.Discard}
	w := workload{kinds: []Kind{Mutex}, metrics: []metric{{name: "s"}}, measure: func(ctx context.Context, c *cell) ([]float64, error) {
		_, err := stuckSession{}.TryLock(ctx)
		return nil, err
	}}
	require.Equal(t, "offers no try", r.run(t.Context(), []workload{w})[0].trouble)
}

func TestAStoppedRunKeepsWhatItHas(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var progress bytes.Buffer
	r := &runner{options: options{rounds: 5, timeout: time.Minute}, targets: []target{stuckTarget()}, progress: &progress}
	rounds := 0
	w := workload{kinds: []Kind{Mutex}, metrics: []metric{{name: "s"}}, measure: func(context.Context, *cell) ([]float64, error) {
		if rounds++; rounds == 3 {
			cancel()
		}
		return []float64{1}, nil
	}}
	rows := r.run(ctx, []workload{w})
	require.Len(t, rows[0].rounds, 2)
	require.Equal(t, 3, rounds)
}

func TestEachServerIsWarmedUpOnce(t *testing.T) {
	var progress bytes.Buffer
	r := &runner{
		options: options{warm: time.Millisecond, rounds: 1, timeout: 20 * time.Millisecond},
		targets: []target{stuckTarget(), stuckTarget()}, progress: &progress,
	}
	rows := r.run(t.Context(), nil)
	require.Empty(t, rows, "nothing of it is reported")
	require.Equal(t, 1, strings.Count(progress.String(), "warm-up"))
	require.Equal(t, 1, r.cells)
}

func TestParallelStopsAtTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	calls := 0
	err := parallel(t.Context(), 100, 1, func(_ context.Context, i int) error {
		calls++
		if i == 2 {
			return broken
		}
		return nil
	})
	require.ErrorIs(t, err, broken)
	require.LessOrEqual(t, calls, 4)
	require.NoError(t, parallel(t.Context(), 0, 1, nil))
}
