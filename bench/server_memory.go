package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// memoryServer keeps election records as an API server would, but without one.
type memoryServer struct {
	mu      sync.Mutex
	records map[string]*record
}

func newMemoryServer() *memoryServer { return &memoryServer{records: make(map[string]*record)} }

func (s *memoryServer) Name() string     { return "in memory" }
func (s *memoryServer) Backend() Backend { return Memory }
func (s *memoryServer) Layout() layout   { return layout{} }
func (s *memoryServer) Close() error     { return nil }

func (s *memoryServer) record(name string) *record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records[name] == nil {
		s.records[name] = &record{name: name}
	}
	return s.records[name]
}

// record is an object with a version, which every update has to know.
type record struct {
	name string

	mu      sync.Mutex
	version int // 0: not created
	value   resourcelock.LeaderElectionRecord
}

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// recordLock is one candidate's access to a record.
type recordLock struct {
	record   *record
	identity string
	timeout  time.Duration // of a request
	cut      *atomic.Bool  // requests get no answer

	version int // as last seen; an elector makes one request at a time
}

var _ resourcelock.Interface = (*recordLock)(nil)

// reach waits for the time-out of a request if the network is cut.
func (l *recordLock) reach(ctx context.Context) error {
	if !l.cut.Load() {
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	<-ctx.Done()
	return fmt.Errorf("the network is cut: %w", ctx.Err())
}

func (l *recordLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := l.reach(ctx); err != nil {
		return nil, nil, err
	}
	l.record.mu.Lock()
	defer l.record.mu.Unlock()
	if l.record.version == 0 {
		return nil, nil, apierrors.NewNotFound(leases, l.record.name)
	}
	l.version = l.record.version
	value := l.record.value
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the record: %w", err)
	}
	return &value, raw, nil
}

func (l *recordLock) Create(ctx context.Context, value resourcelock.LeaderElectionRecord) error {
	if err := l.reach(ctx); err != nil {
		return err
	}
	return l.write(0, value, apierrors.NewAlreadyExists(leases, l.record.name))
}

func (l *recordLock) Update(ctx context.Context, value resourcelock.LeaderElectionRecord) error {
	if err := l.reach(ctx); err != nil {
		return err
	}
	return l.write(l.version, value, apierrors.NewConflict(leases, l.record.name, fmt.Errorf("it has changed")))
}

func (l *recordLock) write(over int, value resourcelock.LeaderElectionRecord, otherwise error) error {
	l.record.mu.Lock()
	defer l.record.mu.Unlock()
	if l.record.version != over {
		return otherwise
	}
	l.record.version++
	l.record.value = value
	l.version = l.record.version
	return nil
}

// RecordEvent is for an API server's events.
func (l *recordLock) RecordEvent(string) {}

func (l *recordLock) Identity() string { return l.identity }
func (l *recordLock) Describe() string { return l.record.name }
