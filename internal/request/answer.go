package request

import (
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"
)

// What etcd and gRPC say without a variable of package rpctypes for it.
var (
	errProposalDropped   = errors.New("raft proposal dropped")
	errNoPrimaryLessor   = errors.New("not a primary lessor")
	errConnectionClosing = errors.New("grpc: the client connection is closing")
)

// IsAnswer reports whether err is the given answer of etcd, an error of package rpctypes, or wraps it.
// Other than errors.Is it finds it in whichever form: as a status of gRPC, which rpctypes.Error does not
// recognize once an interceptor has wrapped it; or as the reason why a watch was cancelled.
func IsAnswer(err, answer error) bool {
	var etcd rpctypes.EtcdError
	var grpc interface{ GRPCStatus() *status.Status }
	said := ""
	switch {
	case errors.As(err, &etcd):
		said = etcd.Error()
	case errors.As(err, &grpc):
		said = grpc.GRPCStatus().Message()
	}
	return strings.Contains(said, rpctypes.ErrorDesc(answer))
}
