package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/examples/internal/stage"
)

// watch waits for records.
type watch struct {
	ctx    context.Context
	events clientv3.WatchChan
}

func newWatch(ctx context.Context, e *stage.Etcd) (*watch, error) {
	now, err := e.Client.Get(ctx, e.Prefix)
	if err != nil {
		return nil, err
	}
	return &watch{ctx, e.Client.Watch(ctx, e.Prefix+"run/", clientv3.WithPrefix(), clientv3.WithRev(now.Header.Revision+1))}, nil
}

func (w *watch) await(fits func(record) bool) (record, error) {
	for answer := range w.events {
		for _, event := range answer.Events {
			var r record
			if err := json.Unmarshal(event.Kv.Value, &r); err != nil {
				return r, err
			}
			if fits(r) {
				return r, nil
			}
		}
		if err := answer.Err(); err != nil {
			return record{}, err
		}
	}
	return record{}, context.Cause(w.ctx)
}

// verify compares what is recorded with what took effect.
func verify(ctx context.Context, e *stage.Etcd, epoch time.Time, killed string) error {
	answer, err := e.Client.Get(ctx, e.Prefix+"run/", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	var records []record
	for _, kv := range answer.Kvs {
		var r record
		if err := json.Unmarshal(kv.Value, &r); err != nil {
			return err
		}
		records = append(records, r)
	}
	if answer, err = e.Client.Get(ctx, e.Prefix+"effect/", clientv3.WithPrefix(), clientv3.WithKeysOnly()); err != nil {
		return err
	}
	effects := map[int]int{}
	for _, kv := range answer.Kvs {
		number, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), e.Prefix+"effect/"), "/")
		tick, err := strconv.Atoi(number)
		if err != nil {
			return err
		}
		effects[tick]++
	}
	e.Printf("\n%5s  %-8s %8s  %7s  %s\n", "tick", "by", "begun", "effects", "")
	late := 0
	for _, r := range records {
		how := "in time"
		switch {
		case !r.Done:
			how = "killed in the middle: how far it got, nobody knows; it is not begun again"
		case r.Late:
			late++
			how = "missed by all, made up for"
		}
		after := r.Begun.Sub(epoch.Add(time.Duration(r.Tick) * every))
		e.Printf("%5d  %-8s %+7.2fs  %7d  %s\n", r.Tick, r.By, after.Seconds(), effects[r.Tick], how)
	}
	if err := judge(records, effects, hangs); err != nil {
		return err
	}
	e.Printf("\n%d ticks, each begun exactly once, %d of them late, all finished but the one of %s, which was killed.\n"+
		"Promised is at most once per tick, whatever happens. Exactly once cannot be where a process may die in the\n"+
		"middle: that takes a job that may be begun again, or one that looks how far it got.\n",
		len(records), late, killed)
	return nil
}

// judge makes sure that every tick has begun once, and has been finished unless its process was killed.
func judge(records []record, effects map[int]int, killed int) error {
	for i, r := range records {
		switch {
		case r.Tick != i+1:
			return fmt.Errorf("tick %d was not begun", i+1)
		case effects[r.Tick] != 1:
			return fmt.Errorf("tick %d has had %d effects", r.Tick, effects[r.Tick])
		case r.Done == (r.Tick == killed):
			return fmt.Errorf("tick %d: finished is %v", r.Tick, r.Done)
		}
	}
	if len(effects) != len(records) {
		return fmt.Errorf("%d ticks have had effects, and %d are recorded", len(effects), len(records))
	}
	return nil
}
