// Package testchild has a test binary start itself again, as another process, and keeps what processes write. It is for tests,
// on Linux.
package testchild
