package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/etcdlock/locks/etcdlock"
	"github.com/etcdlock/locks/session"
)

// workTime is how long the work under the lock takes, give or take half: long enough
// for the audience to follow.
const workTime = 100 * time.Millisecond

var errCounted = errors.New("there is nothing left to count")

// job is the first message that a worker gets. After the second, without content, it goes on
// where it would pause. At the end of its input it leaves.
type job struct {
	Name      string
	Endpoints []string
	Prefix    string
	TTL       time.Duration
	Rounds    int64
	PauseAt   int64 // with the counter there, it keeps the lock until it is told to go on
}

// report is what a worker reports to its parent, one JSON object a line.
type report struct {
	Token   etcdlock.Token `json:",omitzero"` // of an increment that etcd has confirmed
	Wrote   int64          `json:",omitzero"`
	Trouble string         `json:",omitzero"` // or what went wrong
}

type worker struct {
	job      job
	sessions *session.Keeper
	lock     etcdlock.Locker
	ledger   ledger
	goOn     chan struct{} // closed when told to
	reports  *json.Encoder
}

func workerMain(in io.Reader, out, errOut io.Writer) int {
	// Ctrl-C reaches every process of the terminal, but leaving is for the parent to
	// order. And if that has died, a write to it must not end this process half way.
	signal.Ignore(os.Interrupt, syscall.SIGPIPE)

	messages := json.NewDecoder(in)
	var j job
	if err := messages.Decode(&j); err != nil {
		complain(errOut, fmt.Errorf("a worker without a job: %w", err))
		return 2
	}
	w := &worker{job: j, goOn: make(chan struct{}), reports: json.NewEncoder(out)}
	// A worker that is asked to terminate leaves in good order; the others go on.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	go func() { // ends with the process: a read cannot be interrupted
		defer stop() // the parent wants no more of it, or has died
		if messages.Decode(&struct{}{}) == nil {
			close(w.goOn)
			_ = messages.Decode(&struct{}{}) // the end of the input
		}
	}()
	if err := w.run(ctx); err != nil && ctx.Err() == nil {
		w.tell(report{Trouble: err.Error()})
		return 1
	}
	return 0
}

func (w *worker) run(ctx context.Context) error {
	client, err := connect(w.job.Endpoints)
	if err != nil {
		return err
	}
	defer client.Close()
	w.ledger = ledger{client: client, prefix: w.job.Prefix}
	w.sessions = session.Keep(client, session.WithTTL(w.job.TTL))
	defer func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
		_ = w.sessions.Close(bounded) // if that fails, the lease runs out
	}()
	w.lock = etcdlock.NewMutex(w.sessions, "counter",
		etcdlock.WithNamespace(w.ledger.locks()), etcdlock.WithLabel(w.job.Name))

	for {
		asked := time.Now()
		err := etcdlock.Do(ctx, w.lock, func(ctx context.Context, h *etcdlock.Hold) error {
			return w.increment(ctx, h, time.Since(asked))
		})
		switch {
		case err == nil:
		case errors.Is(err, errCounted):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, etcdlock.ErrLost), errors.Is(err, etcdlock.ErrOutcomeUnknown):
			// Get in line again: the Keeper has a new session by then. Whether the
			// increment took effect need not be known, since the next turn begins
			// with a look at the counter.
			w.tell(report{Trouble: "starts over: " + err.Error()})
		default:
			return err
		}
	}
}

// increment is the work that one process at a time may do. ctx ends with the hold.
func (w *worker) increment(ctx context.Context, h *etcdlock.Hold, waited time.Duration) error {
	value, err := w.ledger.read(ctx)
	if err != nil {
		return err
	}
	if value >= w.job.Rounds {
		return errCounted
	}
	s, err := w.sessions.Session(ctx)
	if err != nil {
		return err
	}
	t := turn{Worker: w.job.Name, PID: os.Getpid(), Token: h.Token(), TTL: s.TTL(), Waited: waited, Read: value}
	if err := w.ledger.announce(ctx, h, t); err != nil {
		return err
	}
	if err := w.work(ctx, value); err != nil {
		return err
	}
	if err := w.ledger.commit(ctx, h, t); err != nil {
		return err
	}
	w.tell(report{Token: t.Token, Wrote: t.wrote()})
	return nil
}

// work takes its time, and at one point all the time until it is told to go on.
func (w *worker) work(ctx context.Context, value int64) error {
	done := time.After(workTime/2 + rand.N(workTime))
	if value == w.job.PauseAt {
		select {
		case <-w.goOn:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tell cannot do anything about a parent that does not listen: that has died, and the
// end of the input, which comes with it, ends the worker.
func (w *worker) tell(r report) { _ = w.reports.Encode(r) }
