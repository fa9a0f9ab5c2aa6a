package fairqueue

import (
	"cmp"
	"slices"
)

// census is what is known of a queue of permits.
type census struct {
	revision int64
	size     int64 // how much may be granted
	// first are tickets from the head of the queue, in order; whole says that it goes on
	// to the asker and includes it.
	first []entry
	whole bool
	// last are the asker and, before it, others in falling order, if not whole.
	last []entry
}

// censusOf makes one of all keys under the prefix. The size is the one given if they do not
// tell it, because somebody deleted it.
func censusOf(s space, all []entry, revision, size int64) census {
	c := census{revision: revision, whole: true, first: all}
	slices.SortFunc(c.first, func(a, b entry) int { return cmp.Compare(a.revision, b.revision) })
	c.size = s.sizeIn(all, size)
	return c
}

// reaches reports whether me would be in the census if it were there. Tickets of queues below the
// prefix may have its revision too, and fill the last ones.
func (c census) reaches(me entry) bool {
	return c.whole || len(c.last) > 0 && c.last[len(c.last)-1].revision < me.revision
}

// count tells what a census means for a ticket of the given weight: granted, blocked by its
// predecessor, which waits itself, or crowded by those ahead, all of which may own.
func (s space) count(me entry, weight int64, c census) (v verdict, predecessor entry, ahead []string) {
	if weight > c.size {
		return tooHeavy, entry{}, nil
	}
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
	sum := int64(0)
	for _, e := range c.first {
		if _, ok := s.mode(e.key); !ok || e.revision >= me.revision {
			continue
		}
		ahead = append(ahead, e.key)
		w, ok := s.weight(e.key)
		if !ok || w > c.size-sum { // compared like this, nothing overflows
			return blocked, predecessor, nil // it, or one before it, waits; or owns since before a reduction
		}
		sum += w
	}
	switch {
	case !c.whole && !slices.ContainsFunc(c.first, predecessor.is):
		return askFurther, entry{}, nil
	case weight <= c.size-sum:
		return granted, entry{}, nil
	}
	return crowded, entry{}, ahead
}

// weight of a ticket; one of another kind has none, and takes all there is.
func (s space) weight(key string) (weight int64, ok bool) {
	if mode, _ := s.mode(key); mode != permit {
		return 0, false
	}
	_, weight, ok = s.parts(key)
	return weight, ok && weight > 0
}
