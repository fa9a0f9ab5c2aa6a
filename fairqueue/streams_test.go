package fairqueue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/etcdlock/locks/fairqueue"
	"github.com/etcdlock/locks/session"
)

func TestFollowersShareAStreamWhateverTheirContextsCarry(t *testing.T) {
	c, client := begin(t)
	keeper := session.Keep(client)
	for i := range 10 {
		ctx := metadata.AppendToOutgoingContext(within(t, patience), "request-id", fmt.Sprint(i))
		entries := make(chan []fairqueue.Entry, 1)
		go func() {
			for found, err := range fairqueue.New(keeper, "q").Follow(ctx) {
				if err == nil {
					entries <- found
				}
			}
		}()
		<-entries
	}
	require.Eventually(t, func() bool { return c.Calls("Watch") == 10 }, patience, time.Millisecond)
	require.EqualValues(t, 1, c.StreamsOpened("Watch"))
}
