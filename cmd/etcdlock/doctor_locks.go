package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const (
	probes     = 50
	probeLimit = 5 * time.Second // of all probes of a kind together
)

func (d *doctor) probeName() string { return fmt.Sprintf("doctor-%08x", rand.Uint32()) }

// permissions takes and releases a lock.
func (d *doctor) permissions(ctx context.Context) {
	const check = "permissions"
	trying, cancel := d.limited(ctx)
	defer cancel()
	s, err := session.New(trying, d.client, session.WithTTL(d.ttl.Duration))
	if err == nil {
		defer func() { _ = s.Close(ctx) }()
		var hold *etcdlock.Hold
		if hold, err = etcdlock.NewMutex(s, d.probeName(), d.options()...).Lock(trying); err == nil {
			err = hold.Unlock(trying)
		}
	}
	switch {
	case err == nil:
		d.add(levelOK, check, "", "a lock was taken and released")
	case refused(err):
		d.add(levelFail, check, d.grant(), "locks below %s/ are refused (%v)", d.namespace, err)
	default:
		d.add(levelFail, check, "", "no lock can be taken (%v)", err)
	}
}

// election compares the TTL with the time that an election takes.
func (d *doctor) election(ctx context.Context) {
	const check = "ttl"
	asking, cancel := d.answered(ctx)
	defer cancel()
	least, err := d.client.Grant(asking, 1)
	if err != nil {
		d.add(levelFail, check, "", "no lease is granted (%v)", err)
		return
	}
	_, _ = d.client.Revoke(asking, least.ID)
	minimum := time.Duration(least.TTL) * time.Second // which is one and a half elections, rounded up
	elections := minimum * 4 / 3
	enough := (elections + time.Second - 1).Truncate(time.Second)
	ttl := max(d.ttl.Duration, minimum)
	survived := ttl*2/3 - min(defaultGrace, ttl/2-time.Second) - spare // of a lock that run takes
	if d.ttl.Duration < elections {
		d.add(levelWarn, check, fmt.Sprintf("--ttl %v", enough), "%v is less than two elections: locks may be lost when the leader of etcd changes", d.ttl.Duration)
		return
	}
	d.add(levelOK, check, "", "with %v, %v without an answer are survived at least; etcd's minimum is %v", d.ttl.Duration, max(survived, 0).Round(100*time.Millisecond), minimum)
}

// latency measures what locks are made of.
func (d *doctor) latency(ctx context.Context) {
	trying, cancel := context.WithTimeout(ctx, 3*probeLimit)
	defer cancel()
	s, err := session.New(trying, d.client, session.WithTTL(d.ttl.Duration))
	if err != nil {
		return // permissions has said so
	}
	defer func() { _ = s.Close(ctx) }()
	name := d.probeName()
	mutex := etcdlock.NewMutex(s, name, d.options()...)
	key := d.queues(name)[0] + "/probe"
	d.probe("read", func() error {
		_, err := d.client.Get(trying, key)
		return err
	})
	d.probe("lock+unlock", func() error {
		hold, err := mutex.Lock(trying)
		if err != nil {
			return err
		}
		return hold.Unlock(trying)
	})
	d.probe("delete to event", func() error { return d.deletion(trying, key, s.Lease()) })
}

// deletion returns when a watch has reported that a key was deleted.
func (d *doctor) deletion(ctx context.Context, key string, lease clientv3.LeaseID) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	put, err := d.client.Put(ctx, key, "", clientv3.WithLease(lease))
	if err != nil {
		return err
	}
	events := d.client.Watch(watching, key, clientv3.WithRev(put.Header.Revision+1))
	if _, err := d.client.Delete(ctx, key); err != nil {
		return err
	}
	answer := <-events
	return answer.Err()
}

func (d *doctor) probe(what string, once func() error) {
	const check = "latency"
	var took []time.Duration
	for began := time.Now(); len(took) < probes && time.Since(began) < probeLimit; {
		from := time.Now()
		if err := once(); err != nil {
			d.add(levelFail, check, "", "%s: %v", what, err)
			return
		}
		took = append(took, time.Since(from))
	}
	slices.Sort(took)
	half, most := took[len(took)/2], took[len(took)*99/100]
	third := d.ttl.Duration / 3 // when a lease is renewed
	switch {
	case most > third:
		d.add(levelFail, check, "look at etcd's disk: etcd_disk_wal_fsync_duration_seconds", "%s: p99 is %v, and leases are renewed every %v", what, fine(most), fine(third))
	case most > third/10:
		d.add(levelWarn, check, "look at etcd's disk: etcd_disk_wal_fsync_duration_seconds", "%s: p50 %v, p99 %v", what, fine(half), fine(most))
	default:
		d.add(levelOK, check, "", "%s: p50 %v, p99 %v", what, fine(half), fine(most))
	}
}

// fine leaves three digits.
func fine(d time.Duration) time.Duration {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

func (d *doctor) clock(context.Context) {
	const check = "clock"
	if runtime.GOOS == "linux" {
		d.add(levelOK, check, "", "goes on while the machine is suspended; whether it runs at the right rate cannot be measured in seconds")
		return
	}
	d.add(levelWarn, check, "do not let the machine sleep", "may stop while the machine is suspended: a loss is noticed late then")
}
