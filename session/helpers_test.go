package session_test

import (
	"context"

	"github.com/etcdlock/locks/internal/linktest"
)

type (
	fake = linktest.Etcd
	fate = linktest.Fate
)

var (
	newFake       = linktest.New
	answered      = linktest.Answered
	lost          = linktest.Lost
	unheard       = linktest.Unheard
	late          = linktest.Late
	refused       = linktest.Refused
	deaf          = linktest.Deaf
	inVirtualTime = linktest.InVirtualTime
	open          = linktest.Open
	secondsSince  = linktest.SecondsSince
	ended         = linktest.Ended
	startEtcd     = linktest.StartEtcd
	create        = linktest.NewSession
	put           = linktest.Put
	until         = linktest.Until
)

// silent is a request that is not answered.
func silent(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}
