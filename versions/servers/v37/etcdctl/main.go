// Command etcdctl is etcd's command line client of the version that go.mod names.
package main

import "go.etcd.io/etcd/etcdctl/v3/ctlv3"

func main() { ctlv3.MustStart() }
