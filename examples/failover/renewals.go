package main

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/embedtest"
)

// renewal is one of a lease: which member it came to, and when.
type renewal struct {
	by *embedtest.Member
	at time.Time
}

// renewals are those of one lease.
type renewals chan renewal

// watchRenewals looks at what comes in at each member, with a fault that never bites.
func watchRenewals(cluster *embedtest.Cluster, lease clientv3.LeaseID) (seen renewals, stop func()) {
	seen = make(renewals, 1024)
	var looks []*embedtest.Fault
	for _, m := range cluster.Members() {
		looks = append(looks, cluster.LoseRequest("LeaseKeepAlive", embedtest.On(m), embedtest.When(func(message any) bool {
			if r, ok := message.(*etcdserverpb.LeaseKeepAliveRequest); ok && r.ID == int64(lease) {
				select {
				case seen <- renewal{m, time.Now()}:
				default: // nobody has asked for long
				}
			}
			return false
		})))
	}
	return seen, func() {
		for _, look := range looks {
			look.Heal()
		}
	}
}

// last returns the last that has come in, or the next if there is none.
func (r renewals) last(ctx context.Context) (last renewal, err error) {
	select {
	case last = <-r:
	case <-ctx.Done():
		return last, context.Cause(ctx)
	}
	for {
		select {
		case last = <-r:
		default:
			return last, nil
		}
	}
}
