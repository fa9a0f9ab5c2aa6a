package proof_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// happened is a timeline written by hand: each word is a revision, from 1, at which a key of a queue is
// created (+), deleted (-), marked as shared (~) or no more (!), or created with the mark (*). Time goes as revisions do.
func happened(queue, words string) *timeline {
	l, created := newTimeline(), map[string]int64{}
	for i, word := range strings.Fields(words) {
		revision, key := int64(i+1), "etcdlock/"+queue+"/"+word[1:]
		lease := int64(word[2] - '0')
		kv := &mvccpb.KeyValue{Key: []byte(key), ModRevision: revision, Lease: lease, Value: []byte(word[1:])}
		switch word[0] {
		case '-':
			l.deleted(key, revision, revision)
			continue
		case '+':
			created[key] = revision
		case '*':
			created[key] = revision
			fallthrough
		case '~':
			kv.Value = []byte(`{"mark":"shared","host":""}`)
		}
		kv.CreateRevision = created[key]
		l.put(kv, revision)
	}
	return l
}

func TestOwnershipIsReadOutOfHistory(t *testing.T) {
	tests := map[string]struct {
		queue, words string
		who          ticketID
		owns         int64
	}{
		"alone":                            {"a", "+x1-0", ticketID{"x1-0", 1}, 1},
		"behind one":                       {"a", "+x1-0 +x2-0", ticketID{"x2-0", 2}, never},
		"behind one that left":             {"a", "+x1-0 +x2-0 -x1-0", ticketID{"x2-0", 2}, 3},
		"behind two":                       {"a", "+x1-0 +x2-0 +x3-0 -x2-0 +x4-0 -x1-0", ticketID{"x3-0", 3}, 6},
		"the same name again":              {"a", "+x1-0 -x1-0 +x2-0 +x1-0", ticketID{"x1-0", 4}, never},
		"ahead of one that came later":     {"a", "+x1-0 +x2-0", ticketID{"x1-0", 1}, 1},
		"readers together":                 {"a", "+s1-0 +s2-0", ticketID{"s2-0", 2}, 2},
		"a reader behind a writer":         {"a", "+s1-0 +x2-0 +s3-0 -s1-0 -x2-0", ticketID{"s3-0", 3}, 5},
		"a reader behind a shared writer":  {"a", "+x1-0 +s2-0 ~x1-0", ticketID{"s2-0", 2}, 3},
		"a writer behind a shared writer":  {"a", "+x1-0 +x2-0 ~x1-0", ticketID{"x2-0", 2}, never},
		"upgradeable behind a reader":      {"a", "+s1-0 *x2-0", ticketID{"x2-0", 2}, 2},
		"upgradeable behind another":       {"a", "*x1-0 *x2-0 -x1-0", ticketID{"x2-0", 2}, 3},
		"a reader behind both":             {"a", "*x1-0 *x2-0 +s3-0", ticketID{"s3-0", 3}, 3},
		"a reader behind an upgraded one":  {"a", "*x1-0 !x1-0 +s2-0 +x3-0 ~x1-0 !x1-0", ticketID{"s2-0", 3}, 5},
		"the mark of one, not of the next": {"a", "+x1-0 ~x1-0 +x2-0 +s3-0 !x1-0 -x2-0 ~x1-0", ticketID{"s3-0", 4}, 7},
		"a writer behind a reader":         {"a", "+s1-0 +x2-0 -s1-0", ticketID{"x2-0", 2}, 3},
		"permits up to the size":           {"pool", "+p1-0-1 +p2-0-2", ticketID{"p2-0-2", 2}, 2},
		"permits above the size":           {"pool", "+p1-0-2 +p2-0-2", ticketID{"p2-0-2", 2}, never},
		"permits, when one has left":       {"pool", "+p1-0-1 +p2-0-2 +p3-0-1 -p1-0-1", ticketID{"p3-0-1", 3}, 4},
		"permits, behind one that waits":   {"pool", "+p1-0-2 +p2-0-2 +p3-0-1", ticketID{"p3-0-1", 3}, never},
		"permits, when the other has left": {"pool", "+p1-0-2 +p2-0-2 +p3-0-1 -p2-0-2", ticketID{"p3-0-1", 3}, 4},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := happened(tt.queue, tt.words)
			require.Equal(t, tt.owns, l.owns(l.tickets[ticketID{"etcdlock/" + tt.queue + "/" + tt.who.key, tt.who.created}]))
		})
	}
}

// What clients have been told is compared with what happened; the first of each pair is right.
func TestContradictionsToHistoryAreCaught(t *testing.T) {
	at := func(revision int64) moment { return moment{revision: revision, at: revision} }
	id := func(key string, created int64) ticketID { return ticketID{"etcdlock/a/" + key, created} }
	granted := func(began, done int64, ids ...ticketID) func(*evidence) {
		return func(e *evidence) { e.grants = append(e.grants, grant{"", ids, at(began), at(done), ""}) }
	}
	led := func(began, done int64, value string, one ticketID) func(*evidence) {
		return func(e *evidence) { e.grants = append(e.grants, grant{"", []ticketID{one}, at(began), at(done), value}) }
	}
	trusted := func(last int64, one ticketID) func(*evidence) {
		return func(e *evidence) { e.trusts = append(e.trusts, trust{"", []ticketID{one}, last}) }
	}
	struck := func(one ticketID) func(*evidence) { return func(e *evidence) { e.struck[one] = 1 } }
	released := func(done int64, one ticketID) func(*evidence) {
		return func(e *evidence) { e.releases = append(e.releases, release{"", []ticketID{one}, at(1), at(done)}) }
	}
	upgraded := func(began, done int64, one ticketID) func(*evidence) {
		return func(e *evidence) { e.upgrades = append(e.upgrades, release{"", []ticketID{one}, at(began), at(done)}) }
	}
	closed := func(done int64) func(*evidence) {
		return func(e *evidence) { e.closings = append(e.closings, closing{1, at(1), at(done)}) }
	}
	passed := func(to string, from ticketID) func(*evidence) {
		return func(e *evidence) { e.transfers = append(e.transfers, transfer{from, to, at(9), true}) }
	}
	tests := map[string]struct {
		right bool
		words string
		told  []func(*evidence)
	}{
		"granted in its turn":       {true, "+x1-0 +x2-0 -x1-0", []func(*evidence){granted(1, 3, id("x2-0", 2))}},
		"granted too early":         {false, "+x1-0 +x2-0 -x1-0", []func(*evidence){granted(1, 2, id("x2-0", 2))}},
		"granted what is not there": {false, "+x1-0", []func(*evidence){granted(1, 2, id("x2-0", 2))}},
		"granted what was gone":     {false, "+x1-0 -x1-0 +x2-0", []func(*evidence){granted(2, 3, id("x1-0", 1))}},
		"granted what was there":    {true, "+x1-0 +x2-0 -x1-0", []func(*evidence){granted(2, 3, id("x1-0", 1))}},
		"granted one after the other": {false, "+x1-0 +x2-0 -x1-0 +x3-0 -x2-0",
			[]func(*evidence){granted(1, 5, id("x1-0", 1), id("x2-0", 2))}},
		"believed while it was there":       {true, "+x1-0 -x1-0", []func(*evidence){trusted(2, id("x1-0", 1))}},
		"believed when it was gone":         {false, "+x1-0 -x1-0", []func(*evidence){trusted(3, id("x1-0", 1))}},
		"believed when it had been removed": {true, "+x1-0 -x1-0", []func(*evidence){trusted(3, id("x1-0", 1)), struck(id("x1-0", 1))}},
		"upgraded beside nobody":            {true, "*x1-0 +s2-0 -s2-0 !x1-0", nil},
		"upgraded beside a reader":          {false, "*x1-0 +s2-0 !x1-0", nil},
		"upgraded beside one behind writer": {true, "*x1-0 +x2-0 +s3-0 !x1-0", nil},
		"not upgraded":                      {false, "*x1-0 +s2-0", []func(*evidence){upgraded(1, 2, id("x1-0", 1))}},
		"upgraded":                          {true, "*x1-0 !x1-0 ~x1-0", []func(*evidence){upgraded(1, 3, id("x1-0", 1))}},
		"released":                          {true, "+x1-0 -x1-0", []func(*evidence){released(2, id("x1-0", 1))}},
		"not released":                      {false, "+x1-0 +x2-0 -x1-0", []func(*evidence){released(2, id("x1-0", 1))}},
		"closed":                            {true, "+x1-0 +x1-1 -x1-1 -x1-0", []func(*evidence){closed(4)}},
		"closed but for a key":              {false, "+x1-0 +x1-1 -x1-0", []func(*evidence){closed(3)}},
		"transferred": {true, "+l1-0 +l2-0 +l3-0 -l1-0 -l2-0",
			[]func(*evidence){passed("l2-0", id("l1-0", 1)), led(2, 4, "l2-0", id("l2-0", 2))}},
		"transferred to somebody else":     {false, "+l1-0 +l2-0 +l3-0 -l1-0", []func(*evidence){passed("l3-0", id("l1-0", 1))}},
		"transferred, and nothing is over": {false, "+l1-0 +l2-0", []func(*evidence){passed("l2-0", id("l1-0", 1))}},
		"transferred, and passed over": {false, "+l1-0 +l2-0 +l3-0 -l1-0 -l2-0 +l2-0 -l3-0",
			[]func(*evidence){passed("l2-0", id("l1-0", 1)), led(2, 7, "l2-0", id("l2-0", 6))}},
		"transferred, and its session lost": {true, "+l1-0 +l2-0 +l3-0 -l1-0 -l2-0 +l4-0 -l3-0",
			[]func(*evidence){passed("l2-0", id("l1-0", 1)), led(2, 7, "l2-0", id("l4-0", 6))}},
		"transferred, and passed over in a session that lives": {false, "+l1-0 +l2-0 +l2-1 +l3-0 -l1-0 -l2-0 +l4-0 -l2-1 -l3-0",
			[]func(*evidence){passed("l2-0", id("l1-0", 1)), led(2, 9, "l2-0", id("l4-0", 7))}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEvidence()
			for _, tell := range tt.told {
				tell(&e)
			}
			wrong := e.compare(happened("a", tt.words))
			require.Equal(t, tt.right, len(wrong) == 0, wrong)
		})
	}
}
