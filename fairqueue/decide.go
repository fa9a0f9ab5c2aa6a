package fairqueue

import "math"

// entry is a key in an answer, with its create revision.
type entry struct {
	key      string
	revision int64
	marked   bool // its owner shares; false in answers without values
}

// is reports whether both are the same ticket.
func (e entry) is(other entry) bool { return e.key == other.key && e.revision == other.revision }

// answer is what etcd said about a queue.
type answer struct {
	revision int64 // of the store
	entries  []entry
	length   int64 // of the queue, about; 0 if unknown
	// completeSince says how far back the answer is complete. Every key that may block the
	// ticket in question and was created after completeSince, up to the ticket's own, is in
	// entries, and so is the ticket's own if it was created after completeSince. Of those created
	// at completeSince, by one transaction, some may be missing. 0 means that none is. Above the
	// ticket's own revision it means that only what happens to be in entries is known.
	completeSince int64
}

// verdict is what an answer means for a ticket.
type verdict int

const (
	granted    verdict = iota + 1
	blocked            // by the entry that comes with it, the nearest one
	gone               // the ticket is not there any more
	askFurther         // the answer was cut off too early
	askAgain           // the answer is older than the question
)

// decide returns what an answer means for the ticket me of mode m. An answer older than minRevision, that of the
// event that raised the question, does not count.
func (s space) decide(me entry, m Mode, minRevision int64, a answer) (verdict, entry) {
	if a.revision < max(minRevision, me.revision) {
		return askAgain, entry{}
	}
	present := false
	var nearest entry
	for _, e := range a.entries {
		switch {
		case e.is(me):
			present = true
		case e.revision < me.revision && e.revision > nearest.revision && s.blocks(e, m):
			nearest = e
		}
	}
	switch {
	case !present && a.completeSince < me.revision:
		return gone, entry{}
	case nearest.revision > 0 && nearest.revision >= a.completeSince:
		return blocked, nearest
	case a.completeSince > 0:
		return askFurther, entry{}
	}
	return granted, entry{}
}

// completeSince is that of a list which etcd sorted by falling create revision, up to the
// ticket's, and perhaps cut off.
func completeSince(sorted []entry, more bool) int64 {
	switch {
	case !more:
		return 0
	case len(sorted) == 0:
		return math.MaxInt64 // nothing is known
	}
	return sorted[len(sorted)-1].revision
}
