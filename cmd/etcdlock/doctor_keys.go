package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	keysAtOnce  = 1000
	leasesAsked = 200
	namesShown  = 3
)

// Keys below a namespace, as package fairqueue documents them.
var (
	ticketKey = regexp.MustCompile(`^([^/]+?)(?:!/slot/\d+)?/([xslp])[0-9a-f]+(?:-[0-9a-f]+){1,2}$`)
	sizeKey   = regexp.MustCompile(`^([^/]+)/!size/\d+-\d+$`)
	epochKey  = regexp.MustCompile(`^(?:[^/]+/)?!/epoch/[0-9a-f]+$`)
)

// contents are the keys of a namespace.
type contents struct {
	count   int
	leases  map[int64]string // a key of each
	unknown []string
	forever []string        // those of unknown that no lease ends
	sizes   map[string]bool // of semaphores, by escaped name: whether somebody holds permits or waits for them
}

func (n *contents) add(namespace string, kv *mvccpb.KeyValue) {
	n.count++
	if kv.Lease != 0 {
		n.leases[kv.Lease] = string(kv.Key)
	}
	key := strings.TrimPrefix(string(kv.Key), namespace+"/")
	ticket, size := ticketKey.FindStringSubmatch(key), sizeKey.FindStringSubmatch(key)
	switch {
	case ticket != nil && ticket[2] == "p":
		if _, ok := n.sizes[ticket[1]]; ok { // which comes first, in the order of keys
			n.sizes[ticket[1]] = true
		}
	case size != nil:
		n.sizes[size[1]] = false
	case ticket != nil, epochKey.MatchString(key):
	default:
		n.unknown = append(n.unknown, string(kv.Key))
		if kv.Lease == 0 {
			n.forever = append(n.forever, string(kv.Key))
		}
	}
}

// unused returns the semaphores that have a size and no users.
func (n *contents) unused() (names []string) {
	for name, used := range n.sizes {
		if !used {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// readContents reads all keys of the namespace, as they were at one revision. An answer without values has no leases.
func (d *doctor) readContents(ctx context.Context) (*contents, error) {
	found := &contents{leases: map[int64]string{}, sizes: map[string]bool{}}
	from, revision := d.namespace+"/", int64(0)
	end := clientv3.GetPrefixRangeEnd(from)
	for {
		page, err := d.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(keysAtOnce), clientv3.WithRev(revision))
		if err != nil {
			return nil, err
		}
		for _, kv := range page.Kvs {
			found.add(d.namespace, kv)
		}
		if !page.More {
			return found, nil
		}
		from, revision = string(page.Kvs[len(page.Kvs)-1].Key)+"\x00", page.Header.Revision
	}
}

// contents looks for keys and leases of the namespace that are not as they should be.
func (d *doctor) contents(ctx context.Context) {
	asking, cancel := d.limited(ctx)
	defer cancel()
	found, err := d.readContents(asking)
	if err != nil {
		d.add(levelWarn, "keys", d.grant(), "the namespace cannot be read (%v)", err)
		return
	}
	d.keys(found)
	d.leases(asking, found)
}

func (d *doctor) keys(found *contents) {
	const check = "keys"
	switch {
	case len(found.forever) > 0:
		d.add(levelWarn, check, "etcdctl del "+found.forever[0], "%s of a kind that is not known and without a lease: a lock below whose name one is waits until it is deleted", some(found.forever))
	case len(found.unknown) > 0:
		d.add(levelWarn, check, "etcdctl get "+found.unknown[0], "%s of a kind that is not known: other programs use the namespace %q", some(found.unknown), d.namespace)
	default:
		d.add(levelOK, check, "", "%d, all of kinds that are known", found.count)
	}
	if unused := found.unused(); len(unused) > 0 {
		d.add(levelOK, check, fmt.Sprintf("etcdctl del --prefix %s/%s/!size/, if it is not needed any more", d.namespace, unused[0]),
			"%d of %d semaphores have a size and no users now: %s", len(unused), len(found.sizes), listed(unused))
	}
}

// some describes keys.
func some(keys []string) string {
	if len(keys) == 1 {
		return "1 key (" + keys[0] + ") is"
	}
	return fmt.Sprintf("%d keys (%s) are", len(keys), listed(keys))
}

func listed(names []string) string {
	text := strings.Join(names[:min(namesShown, len(names))], ", ")
	if len(names) > namesShown {
		text += ", …"
	}
	return text
}

// leases looks for holders that do not renew theirs.
func (d *doctor) leases(ctx context.Context, found *contents) {
	const check = "leases"
	overdue, asked := 0, 0
	for lease, key := range found.leases {
		if asked++; asked > leasesAsked {
			break
		}
		left, err := d.client.TimeToLive(ctx, clientv3.LeaseID(lease))
		if err == nil && left.TTL >= 0 && left.TTL < left.GrantedTTL/2 {
			overdue++
			d.add(levelWarn, check, "etcdlock inspect, or wait until it ends", "lease %x of %s was not renewed when due, and ends in %d s", lease, key, left.TTL)
		}
	}
	if overdue == 0 {
		d.add(levelOK, check, "", "%d, of which %d were looked at: all are renewed when due", len(found.leases), min(leasesAsked, len(found.leases)))
	}
}
