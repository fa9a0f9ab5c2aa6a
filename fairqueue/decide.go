package fairqueue

import "math"

// entry is a key seen in an answer, with its create revision.
type entry struct {
	key      string
	revision int64
	marked   bool // shares what it owns; not known from answers without values
}

// is reports whether both are the same ticket.
func (e entry) is(other entry) bool { return e.key == other.key && e.revision == other.revision }

// answer is what etcd said about a queue, whatever the question was.
type answer struct {
	// revision is that of the store when it was true.
	revision int64
	entries  []entry
	length   int64 // of the queue, about; 0 if nothing is known
	// from says how far back it is complete: every key that may block the asker
	// and was created after from, up to the asker's own, is in entries, and so is
	// the asker's own if it was created after from. Of those created at from, by
	// one transaction, some may be missing. 0 means that nothing is. Above the
	// asker's own revision it means that nothing is known but what happens to be
	// in entries.
	from int64
}

// verdict is what an answer means for the one who asked.
type verdict int

const (
	granted    verdict = iota + 1
	blocked            // by the entry that comes with it, the nearest one
	gone               // the asker's own ticket is not there any more
	askFurther         // the answer was cut off before it could tell
	askAgain           // the answer is older than the question
	crowded            // permits only: until any of those ahead leaves
	tooHeavy           // permits only: more than there are in all
)

// decide tells what an answer means for the ticket me of mode m. least is the
// lowest revision at which an answer counts: that of the news which raised the
// question.
func (s space) decide(me entry, m Mode, least int64, a answer) (verdict, entry) {
	if a.revision < max(least, me.revision) {
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
	case !present && a.from < me.revision:
		return gone, entry{}
	case nearest.revision > 0 && nearest.revision >= a.from:
		return blocked, nearest
	case a.from > 0:
		return askFurther, entry{}
	}
	return granted, entry{}
}

// completeFrom is answer.from for a list that etcd sorted by falling create
// revision, up to the asker's, and perhaps cut off.
func completeFrom(sorted []entry, more bool) int64 {
	switch {
	case !more:
		return 0
	case len(sorted) == 0:
		return math.MaxInt64 // nothing is known
	}
	return sorted[len(sorted)-1].revision
}
