package coord

import (
	"errors"
	"fmt"

	"github.com/etcdlock/locks/etcdlock"
)

var (
	// ErrIDTaken is returned by the calls that join if another member with the same id is alive. Give each process an id
	// of its own.
	ErrIDTaken = errors.New("coord: the id is taken")

	// ErrReassigned is the cause with which a work's context ends if the shard goes to another member. Stop the work, and
	// return.
	ErrReassigned = errors.New("coord: the shard is reassigned")
)

// CountError says that members of the same [Shards], or users of the same [Latch] or [Barrier], have declared different
// numbers. The one that came last gets it. To change the number, stop all members first, or reset the latch.
type CountError struct {
	What     string // what is counted: "shards", "arrivals" or "parties"
	ID       string // of the member, arrival or party that gets the error; empty for a call without an id
	Count    int    // the number that it has declared
	Other    string // the id of a member, arrival or party that was there before
	Declared int    // the number that this one has declared
}

func (e *CountError) Error() string {
	return fmt.Sprintf("coord: %q has declared %d %s, but %q, which was there before, %d", brief(e.ID), e.Count, e.What, brief(e.Other), e.Declared)
}

// PanicError is what [Shards.Run] panics with if a work has panicked.
type PanicError struct {
	Shard int
	Value any    // of the panic
	Stack []byte // of the work's goroutine
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("coord: the work of shard %d panicked: %v\n\n%s", e.Shard, e.Value, e.Stack)
}

// Unwrap returns the value of the panic if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// failed wraps err unless it is nil.
func failed(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &etcdlock.Error{Op: op, Name: name, Err: bare(err)}
}

// bare takes the operation and the name from an error of a lock that the caller knows nothing of.
func bare(err error) error {
	if inner, ok := err.(*etcdlock.Error); ok { //nolint:errorlint // what it wraps stays
		return inner.Err
	}
	return err
}

const briefLength = 128

// brief cuts what a caller has given down to what a text can have.
func brief(s string) string {
	if len(s) <= briefLength {
		return s
	}
	return fmt.Sprintf("%.*s…", briefLength, s)
}
