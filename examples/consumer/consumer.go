package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/coord"
	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

const (
	count  = 64                     // partitions
	pace   = 250 * time.Millisecond // at which a message comes to each
	settle = 300 * time.Millisecond // short, as the TTL is, for a show
)

// events is a queue of messages in partitions, numbered from 1 in each.
type events struct {
	client *clientv3.Client
	prefix string
}

// handled is the counter of a partition, and what has written it.
type handled struct {
	Message int
	By      string
	Token   etcdlock.Token
}

func (q events) counter(partition int) string { return q.prefix + "handled/" + strconv.Itoa(partition) }

func (q events) partitions(sessions session.Source) *coord.Shards {
	return coord.NewShards(sessions, "events", count, coord.WithNamespace(q.prefix+"locks"), coord.WithSettle(settle))
}

// consume handles messages as one member of the fleet until ctx ends. This is the part to copy.
func (q events) consume(ctx context.Context, sessions session.Source, id string) error {
	err := q.partitions(sessions).Run(ctx, id, func(ctx context.Context, h *etcdlock.Hold, partition int) error {
		return unlessStopped(ctx, q.work(ctx, h, id, partition))
	})
	return unlessStopped(ctx, err)
}

// unlessStopped returns nil if ctx has ended, by the end of the process, for another member, or by a loss: then an error is
// to be expected.
func unlessStopped(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

// work handles the messages of a partition, one after the other. The message is handled and counted in one transaction, which
// etcd refuses if the partition has another owner. So each is handled once, whatever happens to this process.
func (q events) work(ctx context.Context, h *etcdlock.Hold, id string, partition int) error {
	last, err := q.last(ctx, partition)
	for err == nil {
		select {
		case <-time.After(pace): // the next message
		case <-ctx.Done():
			return nil
		}
		value, failure := json.Marshal(handled{last + 1, id, h.Token()})
		if failure != nil {
			return failure
		}
		_, err = h.Txn(ctx).Then(clientv3.OpPut(q.counter(partition), string(value))).Commit()
		switch {
		case errors.Is(err, etcdlock.ErrOutcomeUnknown): // it may be handled, or not
			last, err = q.last(ctx, partition)
		case err == nil:
			last++
		}
	}
	return err
}

// last returns the last message that was handled, by whichever owner.
func (q events) last(ctx context.Context, partition int) (int, error) {
	answer, err := q.client.Get(ctx, q.counter(partition))
	if err != nil || len(answer.Kvs) == 0 {
		return 0, err
	}
	var counted handled
	if err := json.Unmarshal(answer.Kvs[0].Value, &counted); err != nil {
		return 0, fmt.Errorf("the counter of partition %d: %w", partition, err)
	}
	return counted.Message, nil
}
