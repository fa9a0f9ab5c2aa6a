package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/examples/internal/stage"
	"github.com/etcdlock/locks/session"
)

// workTime is what it takes to add two numbers, so that the audience can see it.
const workTime = 250 * time.Millisecond

const landed = "landed"

type job struct {
	Name   string
	Adds   int
	TTL    time.Duration
	Bank   bank
	Pauses bool
}

// clerk adds to the account, in every place where it is kept, under the lock.
func clerk(ctx context.Context, e *stage.Etcd) (err error) {
	var j job
	if err := e.Job(&j); err != nil {
		return err
	}
	places, closePlaces, err := j.Bank.open(e.Client)
	if err != nil {
		return err
	}
	defer closePlaces()
	sessions := session.Keep(e.Client, session.WithTTL(j.TTL))
	defer func() { err = errors.Join(err, sessions.Close(context.WithoutCancel(ctx))) }()
	lock := etcdlock.NewMutex(sessions, "account", etcdlock.WithNamespace(e.Prefix+"locks"), etcdlock.WithLabel(j.Name))

	h, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	r := report{What: "holds", At: time.Now(), Token: h.Token()}
	for _, p := range places {
		balance, err := p.Read(ctx, h)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		r.Balances = append(r.Balances, balance)
	}
	tell(e, r)
	work(ctx)
	if err := h.Err(); err != nil {
		return err // it looks, but not for the last time, as it turns out
	}
	if j.Pauses {
		if err := pause(ctx, j.Bank.URL); err != nil {
			return err
		}
	}
	// On purpose not with the context of the hold. That would have ended in time to keep most of
	// these writes from being sent, and nobody could see that it cannot keep all.
	w := report{What: "wrote", At: time.Now(), Token: h.Token()}
	for i, p := range places {
		switch err := p.Write(ctx, h, r.Balances[i]+j.Adds); {
		case err == nil:
			w.Results = append(w.Results, landed)
		case errors.Is(err, etcdlock.ErrLost):
			w.Results = append(w.Results, "refused, ErrLost")
		case errors.Is(err, etcdlock.ErrStale):
			w.Results = append(w.Results, "refused, ErrStale")
		default:
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	w.Looked, w.Deadline = fmt.Sprint(h.Err()), h.Deadline()
	tell(e, w)
	if err := h.Unlock(ctx); err != nil && !errors.Is(err, etcdlock.ErrLost) {
		return err
	}
	return nil
}

func tell(e *stage.Etcd, r report) {
	line, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers
	}
	e.Printf("%s\n", line)
}

func work(ctx context.Context) {
	select {
	case <-time.After(workTime):
	case <-ctx.Done():
	}
}

// pause is the point in the program at which the process happens to be stopped. The call returns
// only when the process has been stopped and is running again.
func pause(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/pause", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
