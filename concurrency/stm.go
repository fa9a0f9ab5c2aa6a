package concurrency

import "go.etcd.io/etcd/client/v3/concurrency"

// These are etcd's own: software transactional memory has nothing to do with locks.
type (
	// STM is an interface for software transactional memory.
	STM = concurrency.STM
	// STMOption changes a default of [NewSTM].
	STMOption = concurrency.STMOption
	// Isolation is the level at which a transaction is isolated from others.
	Isolation = concurrency.Isolation
)

// Levels of isolation, from the strictest on.
const (
	SerializableSnapshot = concurrency.SerializableSnapshot
	Serializable         = concurrency.Serializable
	RepeatableReads      = concurrency.RepeatableReads
	ReadCommitted        = concurrency.ReadCommitted
)

// Functions of software transactional memory, as in etcd's package.
var (
	NewSTM              = concurrency.NewSTM
	NewSTMRepeatable    = concurrency.NewSTMRepeatable
	NewSTMSerializable  = concurrency.NewSTMSerializable
	NewSTMReadCommitted = concurrency.NewSTMReadCommitted
	WithIsolation       = concurrency.WithIsolation
	WithAbortContext    = concurrency.WithAbortContext
	WithPrefetch        = concurrency.WithPrefetch
)
