package fairqueue

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Owner describes the holder of a ticket, for people. Nothing but its Mark decides anything. It is stored
// as JSON in the ticket's value, so that "etcdctl get --prefix" shows it.
type Owner struct {
	Mark    string    `json:"mark,omitempty"` // of an exclusive owner: "shared" if it lets shared ones in, or "owner", with a length and its revision, in a long queue
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Program string    `json:"program,omitempty"`
	Label   string    `json:"label,omitempty"`
	Since   time.Time `json:"since,omitzero"` // when it joined, by the owner's clock
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

// valueAt returns the value of a ticket that joins now.
func (o Owner) valueAt(now time.Time) string {
	o.Since = now.UTC().Truncate(time.Millisecond)
	b, err := json.Marshal(o)
	if err != nil {
		panic("fairqueue: " + err.Error()) // strings, a number and a time
	}
	return string(b)
}

// markedShared begins the value of an exclusive ticket whose owner shares with those
// shared ones that have nothing else ahead of them.
const markedShared = `{"mark":"shared",`

func isMarked(value []byte) bool { return bytes.HasPrefix(value, []byte(markedShared)) }

// parseOwner reads what valueAt wrote; what others wrote is not for it to judge.
func parseOwner(value []byte) Owner {
	var o Owner
	if json.Unmarshal(value, &o) != nil {
		return Owner{}
	}
	return o
}
