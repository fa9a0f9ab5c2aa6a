package embedtest

import (
	"context"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver"
)

// RaiseAlarm raises an alarm as etcd does by itself: NOSPACE when the database is
// larger than its quota, CORRUPT when the members' data differ. NOSPACE refuses puts,
// transactions with puts, and new leases. CORRUPT refuses every transaction, put and
// delete, and also the grant and the revocation of leases. Reads go on, and renewals.
// The alarm lasts, also over restarts, until [Cluster.DisarmAlarms]. When RaiseAlarm
// returns, every member that runs and is not isolated obeys.
func (c *Cluster) RaiseAlarm(ctx context.Context, alarm etcdserverpb.AlarmType) error {
	server, err := c.leaderServer(ctx)
	if err != nil {
		return fmt.Errorf("embedtest: raise alarm %s: %w", alarm, err)
	}
	raised := &etcdserverpb.AlarmMember{MemberID: uint64(server.MemberID()), Alarm: alarm}
	if err := c.setAlarm(ctx, server, etcdserverpb.AlarmRequest_ACTIVATE, raised); err != nil {
		return fmt.Errorf("embedtest: raise alarm %s: %w", alarm, err)
	}
	return nil
}

// DisarmAlarms ends all alarms, etcd's own included, as etcdctl alarm disarm does.
// When it returns, every member that runs and is not isolated serves as before. etcd
// raises NOSPACE again at the next write if the database is still too large.
func (c *Cluster) DisarmAlarms(ctx context.Context) error {
	server, err := c.leaderServer(ctx)
	if err != nil {
		return fmt.Errorf("embedtest: disarm alarms: %w", err)
	}
	for _, raised := range server.Alarms() {
		if err := c.setAlarm(ctx, server, etcdserverpb.AlarmRequest_DEACTIVATE, raised); err != nil {
			return fmt.Errorf("embedtest: disarm alarms: %w", err)
		}
	}
	return nil
}

func (c *Cluster) setAlarm(ctx context.Context, server *etcdserver.EtcdServer, action etcdserverpb.AlarmRequest_AlarmAction, alarm *etcdserverpb.AlarmMember) error {
	_, err := server.Alarm(ctx, &etcdserverpb.AlarmRequest{Action: action, MemberID: alarm.MemberID, Alarm: alarm.Alarm})
	if err != nil {
		return err
	}
	return c.awaitEachReachable(ctx, func(s *etcdserver.EtcdServer) bool {
		stands := slices.ContainsFunc(s.Alarms(), func(other *etcdserverpb.AlarmMember) bool {
			return other.MemberID == alarm.MemberID && other.Alarm == alarm.Alarm
		})
		return stands == (action == etcdserverpb.AlarmRequest_ACTIVATE)
	})
}
