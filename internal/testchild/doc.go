// Package testchild has a test binary start itself again, as another process. It is for tests, on Linux.
package testchild
