package fairqueue

import (
	"cmp"
	"slices"
)

// permitSnapshot is what is known of a queue of permits at one revision.
type permitSnapshot struct {
	revision int64
	size     int64 // how much may be granted
	// first are tickets from the head of the queue, in order; whole says that they reach
	// the ticket in question and include it.
	first []entry
	whole bool
	// last are the ticket and, before it, others in falling order, if not whole.
	last []entry
}

// snapshotOf makes one of all keys under the prefix. The size is the one given if they do not
// have it, because it was removed by hand.
func snapshotOf(s space, all []entry, revision, size int64) permitSnapshot {
	slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(a.revision, b.revision) })
	return permitSnapshot{revision: revision, size: s.sizeIn(all, size), whole: true, first: all}
}

// reaches reports whether me would be in the snapshot if it were there. Tickets of queues below the
// prefix may have its revision too, and fill the last ones.
func (c permitSnapshot) reaches(me entry) bool {
	return c.whole || len(c.last) > 0 && c.last[len(c.last)-1].revision < me.revision
}

// decide returns what a snapshot means for a ticket of the given weight: granted, or blocked either by its
// predecessor, which waits itself, or by those ahead, if all of them may own.
func (c permitSnapshot) decide(s space, me entry, weight int64) (v verdict, predecessor entry, ahead []string) {
	nearby := c.last
	if c.whole {
		nearby = c.first
	}
	present := me.key == ""
	for _, e := range nearby {
		if e.is(me) {
			present = true
		} else if _, ok := s.mode(e.key); ok && e.revision < me.revision && e.revision > predecessor.revision {
			predecessor = e
		}
	}
	switch {
	case !present && c.reaches(me):
		return gone, entry{}, nil
	case !present, predecessor.key == "" && !c.whole:
		return askFurther, entry{}, nil
	}
	left := c.size
	for _, e := range c.first {
		if _, ok := s.mode(e.key); !ok || e.revision >= me.revision {
			continue
		}
		w, ok := s.weight(e.key)
		if !ok || w > left {
			return blocked, predecessor, nil // it, or one before it, waits; or owns since before a reduction
		}
		ahead = append(ahead, e.key)
		left -= w
	}
	switch {
	case !c.whole && !slices.ContainsFunc(c.first, predecessor.is):
		return askFurther, entry{}, nil
	case weight <= left:
		return granted, entry{}, nil
	}
	return blocked, entry{}, ahead
}

// weight of a ticket; one of another kind has none, and takes all there is.
func (s space) weight(key string) (weight int64, ok bool) {
	if mode, _ := s.mode(key); mode != permit {
		return 0, false
	}
	_, weight, ok = s.parts(key)
	return weight, ok && weight > 0
}
