package link_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/internal/link"
	"github.com/etcdlock/locks/session"
)

// occupy takes all turns, and returns what gives one back.
func occupy(s *session.Session, turns int) (leave chan struct{}) {
	leave = make(chan struct{})
	for range turns {
		go func() { _ = s.Link().InTurn(context.Background(), func() error { <-leave; return nil }) }()
	}
	synctest.Wait()
	return leave
}

func TestTwoAreInTurnAtATime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		leave := occupy(s, 1)
		inside, done := make(chan struct{}, 4), make(chan error, 4)
		for range 4 {
			go func() {
				done <- s.Link().InTurn(context.Background(), func() error {
					inside <- struct{}{}
					<-leave
					return nil
				})
			}()
		}
		for n := range 4 {
			synctest.Wait()
			require.Len(t, inside, 1+n)
			leave <- struct{}{}
		}
		leave <- struct{}{}
		for range 4 {
			require.NoError(t, <-done)
		}
	})
}

type gathered struct {
	callers int
	err     error
}

// gather has n callers ask how many they are.
func gather(ctx context.Context, s *session.Session, key string, n int, err error) <-chan gathered {
	results := make(chan gathered, n)
	for range n {
		go func() {
			answer, err := link.Gather(ctx, s.Link(), key, func(_ context.Context, callers int) (int, error) { return callers, err })
			results <- gathered{answer, err}
		}()
	}
	synctest.Wait()
	return results
}

func TestCallersThatWaitForATurnShareAnAnswer(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		ctx := context.Background()
		require.Equal(t, gathered{1, nil}, <-gather(ctx, s, "key", 1, nil), "at once")
		leave := occupy(s, 2)
		some, more := gather(ctx, s, "key", 50, nil), gather(ctx, s, "key", 50, nil)
		others, refused := gather(ctx, s, "other", 2, nil), gather(ctx, s, "refused", 2, rpctypes.ErrNoLeader)
		require.Empty(t, some)
		leave <- struct{}{}
		for range 50 {
			require.Equal(t, gathered{100, nil}, <-some)
			require.Equal(t, gathered{100, nil}, <-more)
		}
		for range 2 {
			require.Equal(t, gathered{2, nil}, <-others)
			require.Equal(t, gathered{0, rpctypes.ErrNoLeader}, <-refused)
		}
		require.Equal(t, gathered{1, nil}, <-gather(ctx, s, "key", 1, nil), "an answer is not for later callers")
		leave <- struct{}{}
	})
}

func TestAWaitForATurnEndsWithTheCallersContextAndWithTheSession(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		leave := occupy(s, 2)
		defer close(leave)
		wait := func(ctx context.Context) <-chan gathered {
			results := make(chan gathered, 1)
			go func() {
				results <- gathered{err: s.Link().InTurn(ctx, func() error { panic("not its turn") })}
			}()
			synctest.Wait()
			return results
		}
		ctx, cancel := context.WithCancel(context.Background())
		given, givenTogether := wait(ctx), gather(ctx, s, "key", 1, nil)
		last, lastTogether := wait(context.Background()), gather(context.Background(), s, "key", 1, nil)
		cancel()
		require.ErrorIs(t, (<-given).err, context.Canceled)
		require.ErrorIs(t, (<-givenTogether).err, context.Canceled)
		synctest.Wait()
		require.Empty(t, last)
		require.Empty(t, lastTogether, "the others go on")
		require.NoError(t, s.Close(context.Background()))
		require.ErrorIs(t, (<-last).err, session.ErrClosed)
		require.ErrorIs(t, (<-lastTogether).err, session.ErrClosed)
		require.ErrorIs(t, (<-gather(context.Background(), s, "key", 1, nil)).err, session.ErrClosed)
	})
}

// What a question reads may be older than the calls that come while it is asked.
func TestCallersThatComeWhileAQuestionIsAskedGetALaterAnswer(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *line, s *session.Session) {
		answer, first := make(chan struct{}), make(chan gathered, 1)
		go func() {
			callers, err := link.Gather(context.Background(), s.Link(), "key", func(_ context.Context, callers int) (int, error) {
				<-answer
				return callers, nil
			})
			first <- gathered{callers, err}
		}()
		synctest.Wait()
		later := gather(context.Background(), s, "key", 3, nil)
		require.Empty(t, later, "one question of a key at a time")
		close(answer)
		require.Equal(t, gathered{1, nil}, <-first)
		for range 3 {
			require.Equal(t, gathered{3, nil}, <-later)
		}
	})
}
