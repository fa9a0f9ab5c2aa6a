package link_test

import "github.com/etcdlock/locks/internal/linktest"

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
	inVirtualTime = linktest.InVirtualTime
	open          = linktest.Open
	startEtcd     = linktest.StartEtcd
	create        = linktest.NewSession
	put           = linktest.Put
	until         = linktest.Until
)
