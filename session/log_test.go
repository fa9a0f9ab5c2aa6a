package session_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/etcdlock/locks/session"
)

func TestRenewalsThatFailAreLoggedOnceASecondAndNotAfterTheLoss(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 2 * time.Second, 15 * time.Second} {
		inEach(t, map[string]fate{
			"no answer": lost, "late answers": late(900 * time.Millisecond), "refusals": refused(rpctypes.ErrNoLeader),
		}, func(t *testing.T, f *fake, trouble fate) {
			log := &records{}
			f.Renewals.Meet(trouble)
			s := open(t, f, session.WithTTL(ttl), session.WithLogger(slog.New(log)))
			select {
			case <-s.Done():
			case <-time.After(time.Minute):
				require.NoError(t, s.Close(context.Background()))
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			warned := log.Warned()
			for i, r := range warned {
				require.Positive(t, attribute(r, "trusted_for").Duration())
				require.True(t, i == 0 || r.Time.Sub(warned[i-1].Time) >= time.Second)
			}
			if s.State() == session.Lost {
				require.NotEmpty(t, warned)
				require.Equal(t, "session lost", log.Records[len(log.Records)-1].Message)
				require.LessOrEqual(t, len(warned), int(ttl/time.Second)+1)
			}
		})
	}
}

func TestARenewalThatIsAnsweredAgainIsLogged(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, f *fake) {
		log := &records{}
		s := open(t, f, session.WithTTL(15*time.Second), session.WithLogger(slog.New(log)))
		f.Renewals.Meet(lost)
		time.Sleep(10 * time.Second)
		f.Renewals.Meet(answered)
		time.Sleep(time.Minute)
		require.NoError(t, s.Err())
		require.Equal(t, slog.LevelInfo, log.Records[len(log.Records)-1].Level)
		require.Len(t, log.Warned(), len(log.Records)-1)
	})
}
