package session_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/session"
)

// question counts how often it is asked, and answers when it is told to.
type question struct {
	asked  []int // callers
	answer chan error
}

func (q *question) ask(_ context.Context, callers int) (int, error) {
	q.asked = append(q.asked, callers)
	number := len(q.asked)
	return number, <-q.answer
}

type gathered struct {
	answer int
	err    error
}

func (q *question) gather(s *session.Session, n int) <-chan gathered {
	results := make(chan gathered, n)
	for range n {
		go func() {
			answer, err := session.Gather(context.Background(), s, "question", q.ask)
			results <- gathered{answer, err}
		}()
	}
	synctest.Wait()
	return results
}

func TestWhoComesWhileAQuestionWaitsSharesItsAnswer(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		q := &question{answer: make(chan error)}
		first := q.gather(s, 1)
		second := q.gather(s, 1) // since the first has been asked already
		third := q.gather(s, 50) // whose turn comes later
		fourth := q.gather(s, 50)
		require.Equal(t, []int{1, 1}, q.asked)

		q.answer <- nil
		synctest.Wait()
		require.Equal(t, []int{1, 1, 100}, q.asked)
		q.answer <- nil
		refused := errors.New("refused")
		q.answer <- refused
		require.Contains(t, []gathered{{1, nil}, {1, refused}}, <-first)
		require.Contains(t, []gathered{{2, nil}, {2, refused}}, <-second)
		all := <-third
		require.Equal(t, 3, all.answer)
		for range 49 {
			require.Equal(t, all, <-third)
		}
		for range 50 {
			require.Equal(t, all, <-fourth)
		}
	})
}

func TestOtherQuestionsHaveAnswersOfTheirOwn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		ctx := context.Background()
		say := func(what string) func(context.Context, int) (string, error) {
			return func(context.Context, int) (string, error) { return what, nil }
		}
		a, err := session.Gather(ctx, s, "a", say("this"))
		require.NoError(t, err)
		b, err := session.Gather(ctx, s, "b", say("that"))
		require.NoError(t, err)
		require.Equal(t, "this that", a+" "+b)
	})
}

func TestWhoGathersHearsOfTheEnd(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		results := make(chan error, 3)
		ask := func(ctx context.Context, _ int) (int, error) {
			<-ctx.Done()
			return 0, context.Cause(ctx)
		}
		ctx, cancel := context.WithCancel(context.Background())
		for _, ctx := range []context.Context{ctx, context.Background()} {
			go func() {
				_, err := session.Gather(ctx, s, "question", ask)
				results <- err
			}()
			synctest.Wait()
		}
		cancel()
		require.ErrorIs(t, <-results, context.Canceled)
		synctest.Wait()
		require.Empty(t, results, "the others go on")
		require.NoError(t, s.Close(context.Background()))
		require.ErrorIs(t, <-results, session.ErrClosed)
		_, err := session.Gather(context.Background(), s, "question", ask)
		require.ErrorIs(t, err, session.ErrClosed)
	})
}

func TestWhatASessionRunsEndsBeforeItIsClosed(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		ended := false
		s.Go(func(ctx context.Context) {
			<-ctx.Done()
			synctest.Wait()
			ended = true
		})
		require.NoError(t, s.Close(context.Background()))
		require.True(t, ended)
		s.Go(func(context.Context) { panic("closed") })
		synctest.Wait()
	})
}
