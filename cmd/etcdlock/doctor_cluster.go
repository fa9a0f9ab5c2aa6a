package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/coreos/go-semver/semver"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	lagging   = 1000 // entries that a member may be behind
	fullness  = 80   // percent of the quota
	wasteSize = 100 << 20
)

var (
	oldest  = semver.Version{Major: 3, Minor: 4}
	current = semver.Version{Major: 3, Minor: 5} // the oldest that still gets fixes
)

// members asks every endpoint how it is. It reports whether one serves.
func (d *doctor) members(ctx context.Context) bool {
	const check = "members"
	var up []*clientv3.StatusResponse
	for _, endpoint := range d.client.Endpoints() {
		asking, cancel := d.answered(ctx)
		status, err := d.client.Status(asking, endpoint)
		cancel()
		if err != nil {
			d.add(levelFail, check, "etcdctl --endpoints "+endpoint+" endpoint health", "%s does not answer (%v)", endpoint, err)
			continue
		}
		up = append(up, status)
		d.member(endpoint, status)
	}
	if len(up) == 0 {
		d.add(levelFail, check, "is etcd running, and are --endpoints right?", "no endpoint answers")
		return false
	}
	d.together(up)
	d.unlisted(ctx)
	return true
}

// member judges one member by itself.
func (d *doctor) member(endpoint string, s *clientv3.StatusResponse) {
	const check = "members"
	version, err := semver.NewVersion(s.Version)
	switch {
	case err != nil:
		d.add(levelWarn, check, "", "%s has the version %q, which is not known", endpoint, s.Version)
	case version.LessThan(oldest):
		d.add(levelFail, check, "upgrade it", "%s is version %s, and 3.4 is needed", endpoint, s.Version)
	case version.LessThan(current):
		d.add(levelWarn, check, "upgrade it", "%s is version %s, which gets no fixes any more", endpoint, s.Version)
	}
	if s.IsLearner {
		d.add(levelWarn, check, "etcdctl member promote", "%s is a learner, which serves no locks", endpoint)
	}
	if s.Leader == 0 {
		d.add(levelFail, check, "etcdctl endpoint status --cluster", "%s knows no leader", endpoint)
	}
	if s.DbSizeQuota > 0 && s.DbSize*100 > s.DbSizeQuota*fullness {
		d.add(levelWarn, check, "etcdctl compact, etcdctl defrag", "%s has used %d of %d MiB of its quota", endpoint, s.DbSize>>20, s.DbSizeQuota>>20)
	} else if s.DbSize > wasteSize && s.DbSizeInUse < s.DbSize/2 {
		d.add(levelWarn, check, "etcdctl defrag", "%s has %d MiB, of which %d are in use", endpoint, s.DbSize>>20, s.DbSizeInUse>>20)
	}
}

// together compares the members that answered.
func (d *doctor) together(up []*clientv3.StatusResponse) {
	const check = "members"
	byIndex := func(a, b *clientv3.StatusResponse) int { return cmp.Compare(a.RaftIndex, b.RaftIndex) }
	first, last := slices.MinFunc(up, byIndex), slices.MaxFunc(up, byIndex)
	leaders := map[uint64]bool{}
	for _, s := range up {
		if s.Leader != 0 {
			leaders[s.Leader] = true
		}
	}
	switch {
	case len(leaders) > 1:
		d.add(levelWarn, check, "run it again in a moment", "members follow different leaders")
	case last.RaftIndex-first.RaftIndex > lagging:
		d.add(levelWarn, check, "look at its disk and network", "member %x is %d entries behind", first.Header.MemberId, last.RaftIndex-first.RaftIndex)
	case len(leaders) == 1:
		d.add(levelOK, check, "", "%d of %d answer, version %s, one leader", len(up), len(d.client.Endpoints()), up[0].Version)
	}
}

// unlisted looks for members that the endpoints leave out, and for addresses that are of no use to clients.
func (d *doctor) unlisted(ctx context.Context) {
	const check = "endpoints"
	asking, cancel := d.answered(ctx)
	defer cancel()
	list, err := d.client.MemberList(asking)
	if err != nil {
		d.add(levelWarn, check, "", "the list of members cannot be read (%v)", err)
		return
	}
	var all, wrong []string
	for _, m := range list.Members {
		all = append(all, m.ClientURLs...)
		for _, address := range m.ClientURLs {
			if slices.Contains(d.client.Endpoints(), address) {
				continue
			}
			asking, cancel := d.answered(ctx)
			if _, err := d.client.Status(asking, address); err != nil {
				wrong = append(wrong, address)
			}
			cancel()
		}
	}
	switch given := len(d.client.Endpoints()); {
	case given < len(list.Members):
		d.add(levelWarn, check, "--endpoints "+strings.Join(all, ","), "%d endpoints are given and there are %d members", given, len(list.Members))
	case len(wrong) > 0:
		d.add(levelWarn, check, "etcdctl member list; --advertise-client-urls", "members announce addresses that do not answer: %s", strings.Join(wrong, " "))
	default:
		d.add(levelOK, check, "", "all %d members are given", len(list.Members))
	}
}

func (d *doctor) alarms(ctx context.Context) {
	const check = "alarms"
	asking, cancel := d.answered(ctx)
	defer cancel()
	list, err := d.client.AlarmList(asking)
	switch {
	case err != nil:
		d.add(levelWarn, check, "", "cannot be read (%v)", err)
	case len(list.Alarms) == 0:
		d.add(levelOK, check, "", "none")
	default:
		for _, a := range list.Alarms {
			d.add(levelFail, check, "etcdctl compact, etcdctl defrag, etcdctl alarm disarm", "%v at member %x", a.Alarm, a.MemberID)
		}
	}
}

// compaction finds out how much history there is: a watch from the first revision is refused with the last one
// that was compacted.
func (d *doctor) compaction(ctx context.Context) {
	const check = "compaction"
	watching, cancel := d.answered(ctx)
	defer cancel()
	key := d.namespace + "/doctor"
	read, err := d.client.Get(watching, key, clientv3.WithCountOnly())
	if err != nil {
		d.add(levelFail, check, d.grant(), "the revision cannot be read (%v)", err)
		return
	}
	var compacted int64
	for answer := range d.client.Watch(watching, key, clientv3.WithRev(1), clientv3.WithCreatedNotify()) {
		if answer.Err() != nil && answer.CompactRevision == 0 {
			err = answer.Err()
		}
		compacted = answer.CompactRevision
		if compacted != 0 || err != nil || !answer.Created {
			break
		}
		// The refusal, if there is one, follows the notice of the creation, and comes before the progress that is asked for.
		if d.client.RequestProgress(watching) != nil {
			break
		}
	}
	kept := read.Header.Revision - compacted
	switch {
	case err != nil && !strings.Contains(err.Error(), rpctypes.ErrorDesc(rpctypes.ErrCompacted)):
		d.add(levelWarn, check, "", "the history cannot be watched (%v)", err)
	case kept > d.history:
		d.add(levelWarn, check, "etcd --auto-compaction-retention=1h", "%d revisions are kept: nobody compacts", kept)
	default:
		d.add(levelOK, check, "", "%d revisions are kept", kept)
	}
}

// grant is the command that permits locks.
func (d *doctor) grant() string {
	return fmt.Sprintf("etcdctl role grant-permission ROLE --prefix=true readwrite %s/", d.namespace)
}
