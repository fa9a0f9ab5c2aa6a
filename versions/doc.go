// Package versions is a test suite. It runs the core of the lock library against etcd servers of other versions, each
// in a process of its own. The library shares queues with etcd's own clients of that version.
//
//	go -C versions test -v .
//
// prints each test, and a table of all at the end. Etcd 3.5, 3.6 and 3.7 are built from the modules below servers/,
// each of which only calls etcd's main function. Etcd 3.4 cannot be built like that; its binaries are taken from
// ETCD_34 and ETCDCTL_34, or from the PATH (Debian 12: apt-get install etcd-server etcd-client). A version that is
// missing is skipped with a reason, and the table says so.
//
// It is a module of its own, so that users of the library do not inherit its requirements.
package versions
