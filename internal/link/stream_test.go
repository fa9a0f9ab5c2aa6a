package link_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"
)

// W4, W5
func TestWatchesLeaveAStreamOnce(t *testing.T) {
	s := newSession(t)
	outgoing := func() (metadata.MD, int64) {
		ctx, stream := s.Link().WatchContext(metadata.AppendToOutgoingContext(context.Background(), "caller", "mine"))
		md, _ := metadata.FromOutgoingContext(ctx)
		require.Empty(t, md.Get("caller"))
		require.Equal(t, []string{rpctypes.MetadataHasLeader}, md.Get(rpctypes.MetadataRequireLeaderKey))
		return md, stream
	}
	first, stream := outgoing()
	again, same := outgoing()
	require.Equal(t, first, again)
	require.Equal(t, stream, same)

	for range 3 { // three watches of that stream complain, one change is enough
		s.Link().LeaveStream(stream)
	}
	second, next := outgoing()
	require.NotEqual(t, first, second, "the client opens one stream for each set of metadata")
	require.Equal(t, stream+1, next)

	s.Link().LeaveStream(stream)
	_, still := outgoing()
	require.Equal(t, next, still)
}
