package fairqueue

import (
	"cmp"
	"slices"
)

// permitSnapshot is what is known of a queue of permits at one revision.
type permitSnapshot struct {
	revision int64
	size     int64   // how much may be granted
	tickets  []entry // in order; all that are ahead of the ticket in question, and itself
}

// snapshotOf makes one of keys under the prefix. The size is the one given if they do not have it, because it was
// removed by hand.
func snapshotOf(s space, keys []entry, revision, size int64) permitSnapshot {
	if agreed := s.sizeIn(keys); agreed > 0 {
		size = agreed
	}
	keys = slices.DeleteFunc(keys, func(e entry) bool { _, ok := s.mode(e.key); return !ok })
	slices.SortFunc(keys, func(a, b entry) int { return cmp.Compare(a.revision, b.revision) })
	return permitSnapshot{revision, size, keys}
}

// fits returns a SizeError if there are fewer permits than weight.
func (c permitSnapshot) fits(weight int64) error {
	if weight > c.size {
		return &SizeError{Asked: weight, Agreed: c.size, Weight: true}
	}
	return nil
}

// decide returns what a snapshot means for a ticket of the given weight, or one without a key yet: granted, or
// blocked either by its predecessor, which waits itself, or by those ahead, if all of them may own.
func (c permitSnapshot) decide(s space, me entry, weight int64) (v verdict, predecessor entry, ahead []string) {
	present := me.key == ""
	left, waiting := c.size, false
	for _, e := range c.tickets {
		if e.revision >= me.revision {
			present = present || e.is(me)
			continue
		}
		predecessor = e
		ahead = append(ahead, e.key)
		w, ok := s.weight(e.key)
		if !ok || w > left {
			waiting = true // or owns since before a reduction
		} else if !waiting {
			left -= w
		}
	}
	switch {
	case !present:
		return gone, entry{}, nil
	case waiting:
		return blocked, predecessor, nil
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
