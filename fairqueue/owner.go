package fairqueue

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/etcdlock/locks/internal/within"
	"github.com/etcdlock/locks/session"
)

// Owner describes the holder of a ticket, for people. Only its Mark has an effect on the queue. It is stored as JSON
// in the ticket's value, so that "etcdctl get --prefix" shows it.
type Owner struct {
	// Mark is "shared" if an exclusive ticket lets shared ones in, "owner", with a length and its revision, for an owner in a
	// long queue, and "upgrade" for the place in line of an Upgrade.
	Mark    string    `json:"mark,omitempty"`
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Program string    `json:"program,omitempty"`
	Label   string    `json:"label,omitempty"`
	Since   time.Time `json:"since,omitzero"` // when it joined, by the owner's clock

	// Within has keys of the holds that the context of the call came from, 8 at most, in 512 bytes: lines of a create
	// revision, a space and a key. As long as such a key exists with that revision, its holder waits for this ticket.
	Within string `json:"within,omitempty"`

	// Choice says that the ticket is in several queues of which it does not need all.
	Choice bool `json:"choice,omitempty"`
}

func thisProcess(label string) Owner {
	host, _ := os.Hostname() // without one the rest still helps
	return processOwner(host, os.Args[0], label)
}

func processOwner(host, path, label string) Owner {
	return Owner{Host: cut(host, 255), PID: os.Getpid(), Program: cut(filepath.Base(path), 64), Label: label}
}

// cut shortens s to limit bytes, and leaves no half of a character.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "")
}

// value returns the value of a ticket that joins now.
func (q *Queue) value(ctx context.Context, s *session.Session, choice bool) string {
	o := q.owner
	o.Within, o.Choice = within.Live(ctx, s.Client()), choice
	return o.valueAt(time.Now())
}

func (o Owner) valueAt(now time.Time) string {
	o.Since = now.UTC().Truncate(time.Millisecond)
	b, err := json.Marshal(o)
	if err != nil {
		panic("fairqueue: " + err.Error()) // strings, numbers and a time
	}
	return string(b)
}

// markedShared begins the value of an exclusive ticket whose owner shares with those
// shared ones that have nothing else ahead of them.
const markedShared = `{"mark":"shared",`

func markedValue(value string) string {
	return markedShared + strings.TrimPrefix(unmarkedValue(value), "{")
}

func unmarkedValue(value string) string {
	if rest, marked := strings.CutPrefix(value, markedShared); marked {
		return "{" + rest
	}
	return value
}

func isMarked(value []byte) bool { return bytes.HasPrefix(value, []byte(markedShared)) }

// parseOwner reads what valueAt wrote; what others wrote is not for it to judge.
func parseOwner(value []byte) Owner {
	var o Owner
	if json.Unmarshal(value, &o) != nil {
		return Owner{}
	}
	return o
}
