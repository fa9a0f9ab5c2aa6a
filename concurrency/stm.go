package concurrency

import "go.etcd.io/etcd/client/v3/concurrency"

// Software transactional memory is etcd's own. It has nothing to do with locks.
type (
	STM       = concurrency.STM
	STMOption = concurrency.STMOption
	Isolation = concurrency.Isolation
)

const (
	SerializableSnapshot = concurrency.SerializableSnapshot
	Serializable         = concurrency.Serializable
	RepeatableReads      = concurrency.RepeatableReads
	ReadCommitted        = concurrency.ReadCommitted
)

var (
	NewSTM              = concurrency.NewSTM
	NewSTMRepeatable    = concurrency.NewSTMRepeatable
	NewSTMSerializable  = concurrency.NewSTMSerializable
	NewSTMReadCommitted = concurrency.NewSTMReadCommitted
	WithIsolation       = concurrency.WithIsolation
	WithAbortContext    = concurrency.WithAbortContext
	WithPrefetch        = concurrency.WithPrefetch
)
