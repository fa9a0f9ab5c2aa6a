package fairqueue

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"
)

// Owner says who holds a ticket, for people. Nothing decides on it. It is stored
// as JSON in the ticket's value, so that "etcdctl get --prefix" shows it.
type Owner struct {
	Host    string    `json:"host,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Program string    `json:"program,omitempty"`
	Label   string    `json:"label,omitempty"`
	Since   time.Time `json:"since,omitzero"` // when it joined, by the owner's clock
}

func thisProcess(label string) Owner {
	host, _ := os.Hostname() // without one the rest still helps
	return Owner{Host: host, PID: os.Getpid(), Program: filepath.Base(os.Args[0]), Label: label}
}

func (o Owner) value(now time.Time) string {
	o.Since = now.UTC().Truncate(time.Millisecond)
	b, err := json.Marshal(o)
	if err != nil {
		panic("fairqueue: " + err.Error()) // strings, a number and a time in this century
	}
	return string(b)
}

// parseOwner reads what value wrote; what others wrote is not for it to judge.
func parseOwner(value []byte) Owner {
	var o Owner
	if json.Unmarshal(value, &o) != nil {
		return Owner{}
	}
	return o
}
