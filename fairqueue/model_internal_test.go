package fairqueue

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/etcdlock/locks/session"
)

// past is a store of etcd with all its history: past[r] holds the keys that exist at
// revision r.
type past []map[string]birth

// birth is what the past knows of a key.
type birth struct {
	revision int64
	marked   bool // its owner shares
}

// queueNames are the names that can appear directly in the queue q: ours, and
// those of etcd's own tools. The leases are 1 to 4.
var queueNames = []string{
	"x1-0", "x2-0", "x3-0", "x1-1", "s1-0", "s2-0", "s3-0", "s2-1", "x4-0", "s4-0",
	"1", "2", "3a", "694d", "", "t", "r",
}

// otherKeys are no tickets of q, though all but the last few begin with its prefix.
var otherKeys = []string{
	"q/sub/x1-0", "q/sub/s2-0", "q/a/3", "q/s1-0/s2-0", "q/x1-0/x1-0", "q/t/x2-0", "q/sub/", "q//x3-0",
	"q", "q0/x1-0", "q.x1-0", "qq/x1-0", "p/s1-0", "q0", "r/x2-0",
}

// replay makes a history of bytes, two of them for each revision.
func replay(script []byte) past {
	p := past{nil, {}} // a store begins at revision 1
	for len(script) >= 2 && len(p) < 120 {
		what, which := script[0], int(script[1])
		script = script[2:]
		now, revision := maps.Clone(p[len(p)-1]), int64(len(p))
		create := func(key string) {
			if _, taken := now[key]; !taken {
				now[key] = birth{revision: revision}
			}
		}
		ticket := "q/" + queueNames[which%len(queueNames)]
		switch what % 8 {
		case 0, 1, 2: // more come than go, or the queue stays short
			create(ticket)
		case 3:
			create(otherKeys[which%len(otherKeys)])
		case 4: // several queues in one transaction
			create(ticket)
			for i := range int(what/8)%4 + 1 {
				create(otherKeys[(which+i)%len(otherKeys)])
			}
		case 5:
			delete(now, ticket)
		case 6:
			if what/8%2 > 0 {
				markOwner(now)
			} else {
				delete(now, otherKeys[which%len(otherKeys)])
			}
		case 7: // a lease is over
			lease := string(rune('1' + which%4))
			for key := range now {
				name := key[strings.LastIndex(key, "/")+1:]
				if strings.TrimLeft(name, "xs") == lease || strings.HasPrefix(name, "x"+lease) || strings.HasPrefix(name, "s"+lease) {
					delete(now, key)
				}
			}
		}
		p = append(p, now)
	}
	return p
}

// markOwner is what Share does: to an exclusive ticket of ours that owns, and to no other.
func markOwner(now map[string]birth) {
	owner := ""
	for key, b := range now {
		name, ok := strings.CutPrefix(key, "q/")
		if ok && !strings.Contains(name, "/") && (owner == "" || b.revision < now[owner].revision) {
			owner = key
		}
	}
	if strings.HasPrefix(owner, "q/x") {
		now[owner] = birth{revision: now[owner].revision, marked: true}
	}
}

func (p past) latest() int64 { return int64(len(p)) - 1 }

// tickets lists all that were ever in the queue under a name of ours.
func (p past) tickets() []entry {
	seen := map[entry]bool{}
	for _, keys := range p {
		for key, b := range keys {
			if name, ok := strings.CutPrefix(key, "q/"); ok && strings.Contains(name, "-") && !strings.Contains(name, "/") {
				seen[entry{key: key, revision: b.revision}] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.revision, b.revision), cmp.Compare(a.key, b.key))
	})
}

// judge returns by definition the state of me at a revision: whether it is there, and which tickets
// block it.
func (p past) judge(me entry, at int64) (there bool, blockers []entry) {
	shared := func(key string) bool { return strings.Split(key, "/")[1][:min(1, len(key)-2)] == "s" }
	for key, b := range p[at] {
		parts := strings.Split(key, "/")
		if len(parts) != 2 || parts[0] != "q" || b.revision >= me.revision {
			continue
		}
		if !shared(me.key) || !shared(key) && !b.marked {
			blockers = append(blockers, entry{key: key, revision: b.revision})
		}
	}
	return p[at][me.key].revision == me.revision, blockers
}

// check holds a verdict at a revision against the model. Fatalf rather than require:
// the fuzzer is to get around.
func (p past) check(t *testing.T, me entry, at int64, v verdict, e entry) {
	t.Helper()
	there, blockers := p.judge(me, at)
	switch v {
	case granted:
		if !there || len(blockers) > 0 || e != (entry{}) {
			t.Fatalf("at %d %v is granted; there: %v; in the way: %v", at, me, there, blockers)
		}
	case blocked:
		if !there || !slices.Contains(blockers, e) {
			t.Fatalf("at %d %v waits for %v; there: %v; in the way: %v", at, me, e, there, blockers)
		}
		for _, b := range blockers {
			if b.revision > e.revision {
				t.Fatalf("at %d %v waits for %v, but %v is nearer", at, me, e, b)
			}
		}
	case gone:
		if there {
			t.Fatalf("at %d %v is there, but gone", at, me)
		}
	case askFurther, askAgain:
	default:
		t.Fatalf("no verdict: %d", v)
	}
}

// exact is the verdict on the whole truth.
func (p past) exact(me entry, at int64) verdict {
	there, blockers := p.judge(me, at)
	switch {
	case !there:
		return gone
	case len(blockers) > 0:
		return blocked
	}
	return granted
}

// pastKV answers reads out of the past, in the way in which etcd does.
type pastKV struct {
	etcdserverpb.KVClient // the rest of the interface panics

	past past
	// behind is the revision of the member that answers serializable reads.
	behind int64
	// tie decides how those are sorted that were created by one transaction.
	tie bool
	// cut is set when an answer was cut off.
	cut bool
}

func (k *pastKV) at(local bool) int64 {
	if local {
		return k.behind
	}
	return k.past.latest()
}

func (k *pastKV) Range(_ context.Context, r *etcdserverpb.RangeRequest, _ ...grpc.CallOption) (*etcdserverpb.RangeResponse, error) {
	return k.answer(r, k.at(r.Serializable)), nil
}

func (k *pastKV) Txn(_ context.Context, r *etcdserverpb.TxnRequest, _ ...grpc.CallOption) (*etcdserverpb.TxnResponse, error) {
	local := true // a transaction is if all its reads are
	for _, op := range r.Success {
		if op.GetRequestRange() == nil {
			return nil, context.Canceled // the session removing a ticket: the past stays as it is
		}
		local = local && op.GetRequestRange().Serializable
	}
	at := k.at(local)
	answer := &etcdserverpb.TxnResponse{Header: &etcdserverpb.ResponseHeader{Revision: at}, Succeeded: true}
	for _, op := range r.Success {
		answer.Responses = append(answer.Responses, &etcdserverpb.ResponseOp{
			Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: k.answer(op.GetRequestRange(), at)},
		})
	}
	return answer, nil
}

func (k *pastKV) answer(r *etcdserverpb.RangeRequest, at int64) *etcdserverpb.RangeResponse {
	var kvs []*mvccpb.KeyValue
	var count int64
	for key, b := range k.past[at] {
		within := key == string(r.Key)
		if len(r.RangeEnd) > 0 {
			within = key >= string(r.Key) && key < string(r.RangeEnd)
		}
		if within {
			count++ // whatever filters say
		}
		if within && (r.MaxCreateRevision == 0 || b.revision <= r.MaxCreateRevision) {
			kv := &mvccpb.KeyValue{Key: []byte(key), CreateRevision: b.revision}
			if b.marked && !r.KeysOnly {
				kv.Value = []byte(markedShared + `"host":"h"}`)
			}
			kvs = append(kvs, kv)
		}
	}
	slices.SortFunc(kvs, func(a, b *mvccpb.KeyValue) int {
		byKey := strings.Compare(string(a.Key), string(b.Key))
		if r.SortOrder == etcdserverpb.RangeRequest_NONE {
			return byKey
		}
		if k.tie {
			byKey = -byKey
		}
		if r.SortOrder == etcdserverpb.RangeRequest_ASCEND {
			return cmp.Or(cmp.Compare(a.CreateRevision, b.CreateRevision), byKey)
		}
		return cmp.Or(cmp.Compare(b.CreateRevision, a.CreateRevision), byKey)
	})
	answer := &etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{Revision: at}, Kvs: kvs, Count: count}
	if r.Limit > 0 && int64(len(kvs)) > r.Limit {
		answer.Kvs, answer.More, k.cut = kvs[:r.Limit], true, true
	}
	return answer
}

// joined is what the transaction of a join that is applied at a revision, or finds
// itself there when it is tried again, brings back of the queue.
func (k *pastKV) joined(me entry, m Mode, at, limit int64) answer {
	all := space("q/").all()
	r := k.answer(&etcdserverpb.RangeRequest{
		Key: []byte(all.first), RangeEnd: []byte(all.end), Limit: limit, KeysOnly: m != Shared,
	}, at)
	a := answer{revision: r.Header.Revision, entries: entriesOf(r.Kvs)}
	if r.More {
		a.completeSince = me.revision + 1
	}
	return a
}

// lease is as much of etcd as a session needs to be there.
type lease struct{ clientv3.Lease }

func (lease) Grant(context.Context, int64) (*clientv3.LeaseGrantResponse, error) {
	return &clientv3.LeaseGrantResponse{ID: 1, TTL: 3600}, nil
}

func (lease) Revoke(context.Context, clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	return &clientv3.LeaseRevokeResponse{}, nil
}

// inquiry is a queue whose etcd is a past.
type inquiry struct {
	kv    *pastKV
	queue *Queue
}

func newInquiry(tb testing.TB) *inquiry {
	kv := &pastKV{}
	s, err := session.New(context.Background(), &clientv3.Client{Lease: lease{}, KV: clientv3.NewKVFromKVClient(kv, nil)})
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = s.Close(context.Background()) })
	return &inquiry{kv, New(s, "q", Options{})}
}

// run replays a history and puts questions about it, of five bytes each.
func (i *inquiry) run(t *testing.T, script, questions []byte) {
	p := replay(script)
	tickets := p.tickets()
	if len(tickets) == 0 {
		return
	}
	for ; len(questions) >= 5; questions = questions[5:] {
		me := tickets[int(questions[0])%len(tickets)]
		*i.kv = pastKV{past: p, behind: int64(questions[1])%p.latest() + 1, tie: questions[4]&1 > 0}
		// What raised the question came after the ticket.
		least := me.revision + int64(questions[2])%(p.latest()-me.revision+1)
		i.ask(t, me, least, int64(questions[3])%9)
	}
}

func (i *inquiry) ask(t *testing.T, me entry, least, limit int64) {
	p, s := i.kv.past, i.queue.space
	mode, _ := s.mode(me.key)
	ticket := &part{queue: i.queue, session: i.queue.source.(*session.Session), mode: mode, strategy: mode.strategy(), me: me}
	for _, local := range []bool{true, false} {
		i.kv.cut = false
		a, err := ticket.ask(context.Background(), limit, local)
		if err != nil || a.revision != i.kv.at(local) || i.kv.cut && limit == 0 {
			t.Fatalf("answer %v, error %v, cut off: %v", a, err, i.kv.cut)
		}
		p.confront(t, s, me, mode, least, a, i.kv.cut)
	}

	at := max(i.kv.behind, me.revision)
	i.kv.cut = false
	p.confront(t, s, me, mode, me.revision, i.kv.joined(me, mode, at, limit), i.kv.cut)

	if mode != Shared {
		whole, err := i.queue.readWhole(context.Background(), ticket.session)
		if err != nil {
			t.Fatal(err)
		}
		near := whole.endingAt(me)
		p.confront(t, s, me, mode, me.revision, near, near.completeSince > 0)
	}

	if err := ticket.strategy.look(context.Background(), ticket, wakeup{revision: least}); err != nil {
		t.Fatal(err)
	}
	if ticket.seen < least || ticket.verdict != p.exact(me, ticket.seen) {
		t.Fatalf("looked at %d, least %d: %d for %v, not %d", ticket.seen, least, ticket.verdict, me, p.exact(me, ticket.seen))
	}
	p.check(t, me, ticket.seen, ticket.verdict, ticket.nearest)
}

// confront puts one answer to decide and compares what it says with the model.
func (p past) confront(t *testing.T, s space, me entry, m Mode, least int64, a answer, cut bool) {
	t.Helper()
	v, e := s.decide(me, m, least, a)
	if tooOld := a.revision < least || a.revision < me.revision; tooOld != (v == askAgain) {
		t.Fatalf("verdict %d of an answer of %d to %v, least %d", v, a.revision, me, least)
	}
	if v == askAgain {
		return
	}
	p.check(t, me, a.revision, v, e)
	if exact := p.exact(me, a.revision); !cut && v != exact {
		t.Fatalf("verdict %d of %v at %d from the whole answer, not %d", v, me, a.revision, exact)
	}
}

// The verdict on an answer is that on the whole queue, whatever was read and whichever member
// answered.
func FuzzDecideGrantsWhatTheModelGrants(f *testing.F) {
	i := newInquiry(f)
	f.Add([]byte{0, 0, 0, 1, 5, 0, 0, 0}, []byte{0, 9, 0, 0, 0, 1, 9, 0, 1, 0, 2, 9, 0, 2, 0})
	f.Add([]byte{0, 4, 12, 5, 1, 0, 3, 2, 0, 6}, []byte{0, 4, 0, 1, 0, 1, 4, 0, 2, 1, 2, 4, 0, 1, 1})
	f.Add([]byte{28, 4, 28, 0, 4, 6, 7, 0, 0, 0}, []byte{0, 1, 0, 1, 0, 1, 2, 0, 1, 1, 2, 3, 0, 2, 0})
	// An owner that lets readers in, in front of a writer and readers on both sides of it.
	f.Add([]byte{0, 0, 0, 4, 14, 0, 0, 5, 0, 1, 0, 6, 5, 0}, []byte{1, 4, 3, 1, 0, 1, 2, 1, 2, 1, 2, 3, 0, 0, 0, 3, 6, 2, 2, 0, 4, 6, 3, 1, 1})
	f.Fuzz(func(t *testing.T, script, questions []byte) {
		i.run(t, script[:min(len(script), 160)], questions[:min(len(questions), 60)])
	})
}

func TestDecideGrantsWhatTheModelGrants(t *testing.T) {
	i := newInquiry(t)
	random := rand.New(rand.NewPCG(1, 2))
	some := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	for range 300 {
		i.run(t, some(2*random.IntN(100)), some(5*20))
	}
}

func TestDecide(t *testing.T) {
	const s = space("q/")
	me := entry{key: "q/x9-0", revision: 50}
	reader := entry{key: "q/s9-0", revision: 50}
	at := func(revision, from int64, entries ...entry) answer {
		return answer{revision: revision, entries: entries, completeSince: from}
	}
	nobody := entry{}
	writer, other, foreign := entry{key: "q/x1-0", revision: 40}, entry{key: "q/s1-0", revision: 45}, entry{key: "q/694d", revision: 30}
	nested, later := entry{key: "q/sub/x1-0", revision: 48}, entry{key: "q/x2-0", revision: 60}
	tests := map[string]struct {
		me      entry
		mode    Mode
		least   int64
		answer  answer
		verdict verdict
		nearest entry
	}{
		"alone":                               {me, Exclusive, 50, at(50, 0, me), granted, nobody},
		"those behind do not matter":          {me, Exclusive, 50, at(60, 0, me, later), granted, nobody},
		"the nearest of several":              {me, Exclusive, 50, at(50, 0, foreign, writer, other, me), blocked, other},
		"a reader passes over readers":        {reader, Shared, 50, at(50, 0, foreign, writer, other, reader), blocked, writer},
		"readers share":                       {reader, Shared, 50, at(50, 0, other, reader), granted, nobody},
		"a foreign ticket blocks readers":     {reader, Shared, 50, at(50, 0, foreign, reader), blocked, foreign},
		"keys of other queues do not matter":  {me, Exclusive, 50, at(50, 0, nested, me), granted, nobody},
		"not there":                           {me, Exclusive, 50, at(70, 0), gone, nobody},
		"not there, others are":               {me, Exclusive, 50, at(70, 0, writer), gone, nobody},
		"reborn is not there":                 {me, Exclusive, 50, at(70, 0, entry{key: me.key, revision: 65}), gone, nobody},
		"older than the ticket":               {me, Exclusive, 0, at(49, 0, me), askAgain, nobody},
		"older than the news":                 {me, Exclusive, 61, at(60, 0, me), askAgain, nobody},
		"as old as the news":                  {me, Exclusive, 60, at(60, 0, me), granted, nobody},
		"cut off behind the nearest":          {me, Exclusive, 50, at(50, 45, other, me), blocked, other},
		"cut off before the nearest":          {me, Exclusive, 50, at(50, 48, nested, me), askFurther, nobody},
		"a nearer one may have been cut off":  {me, Exclusive, 50, at(50, 46, other, me), askFurther, nobody},
		"cut off below the ticket's place":    {me, Exclusive, 50, at(50, 45, other), gone, nobody},
		"cut off among those of one revision": {me, Exclusive, 50, at(50, 50, entry{key: "q/sub/x9-0", revision: 50}), askFurther, nobody},
		"cut off by key, itself seen":         {me, Exclusive, 50, at(50, 51, other, me), askFurther, nobody},
		"cut off by key, itself not seen":     {me, Exclusive, 50, at(50, 51, other), askFurther, nobody},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			verdict, nearest := s.decide(tt.me, tt.mode, tt.least, tt.answer)
			require.Equal(t, tt.verdict, verdict)
			require.Equal(t, tt.nearest, nearest)
		})
	}
}

func TestAnAnswerFromBeforeTheTicketEndsTheWait(t *testing.T) {
	// What the quorum says cannot be older than what it said before, unless
	// somebody restored a backup. Then nothing can be trusted.
	kv := &pastKV{past: replay([]byte{0, 0}), behind: 1}
	s, err := session.New(context.Background(), &clientv3.Client{Lease: lease{}, KV: clientv3.NewKVFromKVClient(kv, nil)},
		session.WithTTL(time.Hour))
	require.NoError(t, err)
	defer s.Close(context.Background())
	ticket := New(s, "q", Options{}).newPart(s, Exclusive, "", 0)
	ticket.me = entry{key: "q/x1-0", revision: 100}
	err = newTicket(ticket).Wait(context.Background())
	require.ErrorIs(t, err, session.ErrLost)
	require.ErrorContains(t, err, "etcd went back from revision 100 to ")
}
