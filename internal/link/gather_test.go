package link_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/internal/link"
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

func (q *question) gatherAndAnswer(s *session.Session) <-chan gathered {
	results := q.gather(s, 1)
	q.answer <- nil
	return results
}

type gathered struct {
	answer int
	err    error
}

func (q *question) gather(s *session.Session, n int) <-chan gathered {
	results := make(chan gathered, n)
	for range n {
		go func() {
			answer, err := link.Gather(context.Background(), s.Link(), "question", q.ask)
			results <- gathered{answer, err}
		}()
	}
	synctest.Wait()
	return results
}

func TestWhoComesWhileAQuestionIsUnderWaySharesTheNextAnswer(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		q := &question{answer: make(chan error)}
		first := q.gather(s, 1)
		second, third := q.gather(s, 50), q.gather(s, 50)
		require.Equal(t, []int{1}, q.asked)

		q.answer <- nil
		synctest.Wait()
		require.Equal(t, gathered{1, nil}, <-first)
		require.Equal(t, []int{1, 100}, q.asked)
		fourth := q.gather(s, 1)
		refused := errors.New("refused")
		q.answer <- refused
		for range 50 {
			require.Equal(t, gathered{0, refused}, <-second)
			require.Equal(t, gathered{0, refused}, <-third)
		}
		q.answer <- nil
		require.Equal(t, gathered{3, nil}, <-fourth)
		require.Equal(t, gathered{4, nil}, <-q.gatherAndAnswer(s))
		require.Equal(t, []int{1, 100, 1, 1}, q.asked)
	})
}

func TestOtherQuestionsHaveAnswersOfTheirOwn(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		ctx := context.Background()
		say := func(what string) func(context.Context, int) (string, error) {
			return func(context.Context, int) (string, error) { return what, nil }
		}
		a, err := link.Gather(ctx, s.Link(), "a", say("this"))
		require.NoError(t, err)
		b, err := link.Gather(ctx, s.Link(), "b", say("that"))
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
				_, err := link.Gather(ctx, s.Link(), "question", ask)
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
		_, err := link.Gather(context.Background(), s.Link(), "question", ask)
		require.ErrorIs(t, err, session.ErrClosed)
	})
}
