package fairqueue

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// A request to etcd is at most 1.5 MiB large, unless etcd was started with another --max-request-bytes. What is
// written below these limits fits: one value, or the owners of 127 tickets with the longest names of etcdlock.
const (
	largestValue = 1 << 20
	longestLabel = 512

	longestHost    = 255 // as names of hosts are
	longestProgram = 64
)

// ErrTooLarge is returned for a candidate's value of more than 1 MiB ([Queue.JoinCandidate],
// [Ticket.Set]), and by whatever joins a queue that has a label of more than 512 bytes
// ([WithLabel]). The error says how much is allowed. Nothing was sent. Store a large value
// elsewhere, and where it is in the ticket.
var ErrTooLarge = errors.New("etcdlock: too large")

func checkSize(what string, size, limit int) error {
	if size > limit {
		return fmt.Errorf("%w: %s of %d bytes, at most %d are allowed", ErrTooLarge, what, size, limit)
	}
	return nil
}

func checkValue(value string) error { return checkSize("a value", len(value), largestValue) }

// admit refuses what a ticket of q could not have in it.
func (q *Queue) admit(value string) error {
	if q.err != nil {
		return q.err
	}
	return checkValue(value)
}

// cut shortens s to limit bytes, and leaves no half of a character.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
