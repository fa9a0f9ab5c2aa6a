package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/etcdlock"
)

// ledger is what one run keeps in etcd, all of it below one prefix:
//
//	counter        the number that is counted up
//	log/<token>    who raised it, written together with it
//	holder         who has the lock, for the audience
//	end            written when the workers have gone
//	locks/         the lock's queue
type ledger struct {
	client *clientv3.Client
	prefix string // ends in a slash
}

func (l ledger) counter() string { return l.prefix + "counter" }
func (l ledger) holder() string  { return l.prefix + "holder" }
func (l ledger) end() string     { return l.prefix + "end" }
func (l ledger) log() string     { return l.prefix + "log/" }
func (l ledger) locks() string   { return l.prefix + "locks" }

// turn is one worker's turn with the lock, as it is stored under holder and log.
type turn struct {
	Worker string         `json:"worker"`
	PID    int            `json:"pid"`
	Token  etcdlock.Token `json:"token"`
	TTL    time.Duration  `json:"ttl"`    // of the session
	Waited time.Duration  `json:"waited"` // for the lock
	Read   int64          `json:"read"`   // the counter when the turn began
}

// wrote is what the counter stands at after the turn.
func (t turn) wrote() int64 { return t.Read + 1 }

// entry is a turn in the log. The revisions are etcd's word, not the worker's.
type entry struct {
	turn
	created, modified int64
}

// revision asks etcd where it stands, and so whether it is there.
func (l ledger) revision(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	answer, err := l.client.Get(ctx, l.prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return answer.Header.Revision, nil
}

// read returns the counter, 0 if it does not exist yet. The read is linearizable, as
// etcd's reads are by default: under the lock it sees whatever holders before have written.
func (l ledger) read(ctx context.Context) (int64, error) {
	answer, err := l.client.Get(ctx, l.counter())
	if err != nil {
		return 0, fmt.Errorf("reading the counter: %w", err)
	}
	if len(answer.Kvs) == 0 {
		return 0, nil
	}
	return strconv.ParseInt(string(answer.Kvs[0].Value), 10, 64)
}

// announce says publicly who has the lock.
func (l ledger) announce(ctx context.Context, h *etcdlock.Hold, t turn) error {
	return write(h.Txn(ctx).Then(clientv3.OpPut(l.holder(), text(t))))
}

// commit writes what follows the number that was read, and the line in the log, both or
// neither, and only while h exists on the server. There is no comparison with the number
// on purpose: that would protect the counter whatever the lock does, and prove nothing.
func (l ledger) commit(ctx context.Context, h *etcdlock.Hold, t turn) error {
	return write(h.Txn(ctx).Then(
		clientv3.OpPut(l.counter(), strconv.FormatInt(t.wrote(), 10)),
		clientv3.OpPut(l.log()+tokenKey(t.Token), text(t))))
}

func write(txn clientv3.Txn) error {
	_, err := txn.Commit()
	return err
}

// watch reports every change from revision on, in the order in which etcd made them.
func (l ledger) watch(ctx context.Context, revision int64) clientv3.WatchChan {
	return l.client.Watch(ctx, l.prefix, clientv3.WithPrefix(), clientv3.WithRev(revision))
}

// seal writes the last key. A watcher knows then that nothing follows.
func (l ledger) seal(ctx context.Context) error {
	if _, err := l.client.Put(ctx, l.end(), ""); err != nil {
		return fmt.Errorf("sealing the ledger: %w", err)
	}
	return nil
}

// evidence reads counter and log as of one revision.
func (l ledger) evidence(ctx context.Context) (evidence, error) {
	answer, err := l.client.Txn(ctx).Then(
		clientv3.OpGet(l.counter()),
		clientv3.OpGet(l.log(), clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return evidence{}, fmt.Errorf("reading the ledger: %w", err)
	}
	var found evidence
	for _, kv := range answer.Responses[0].GetResponseRange().Kvs {
		if found.counter, err = strconv.ParseInt(string(kv.Value), 10, 64); err != nil {
			return evidence{}, fmt.Errorf("reading the counter: %w", err)
		}
		found.writes = kv.Version // etcd counts the writes of a key
	}
	for _, kv := range answer.Responses[1].GetResponseRange().Kvs {
		t, err := parseTurn(kv.Value)
		if err != nil {
			return evidence{}, fmt.Errorf("reading %s: %w", kv.Key, err)
		}
		found.log = append(found.log, entry{turn: t, created: kv.CreateRevision, modified: kv.ModRevision})
	}
	slices.SortFunc(found.log, func(a, b entry) int { return cmp.Compare(a.modified, b.modified) })
	return found, nil
}

// remove deletes all that the run has written.
func (l ledger) remove(ctx context.Context) error {
	if _, err := l.client.Delete(ctx, l.prefix, clientv3.WithPrefix()); err != nil {
		return fmt.Errorf("removing %s: %w", l.prefix, err)
	}
	return nil
}

// tokenKey has the keys sort as the tokens do.
func tokenKey(t etcdlock.Token) string { return fmt.Sprintf("%020d", t) }

func text(t turn) string {
	b, err := json.Marshal(t)
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	return string(b)
}

func parseTurn(b []byte) (t turn, err error) {
	err = json.Unmarshal(b, &t)
	return t, err
}
