package link_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/session"
)

func TestTwoAreInTurnAtATime(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		inside, leave := make(chan struct{}, 5), make(chan struct{})
		done := make(chan error, 5)
		for range 5 {
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
			require.Len(t, inside, min(2+n, 5))
			leave <- struct{}{}
		}
		leave <- struct{}{}
		for range 5 {
			require.NoError(t, <-done)
		}
	})
}

func TestWhoWaitsForItsTurnHearsOfTheEnd(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		s := open(t, f)
		leave := make(chan struct{})
		for range 2 {
			go func() { _ = s.Link().InTurn(context.Background(), func() error { <-leave; return nil }) }()
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(context.Background())
		results := make(chan error, 2)
		never := func() error { panic("not its turn") }
		go func() { results <- s.Link().InTurn(ctx, never) }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-results, context.Canceled)
		go func() { results <- s.Link().InTurn(context.Background(), never) }()
		synctest.Wait()
		require.NoError(t, s.Close(context.Background()))
		require.ErrorIs(t, <-results, session.ErrClosed)
		close(leave)
	})
}
