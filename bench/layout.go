package main

import "fmt"

// layout is how servers that replicate are set up. There is a cluster of etcd and one of ZooKeeper for each
// layout that the options ask for, since three members of either are slower than one.
type layout struct {
	members int
	fsync   bool
}

// layouts are those that the options ask for.
func layouts(o options) []layout {
	var all []layout
	for _, members := range o.members {
		for _, fsync := range o.fsync {
			all = append(all, layout{members, fsync})
		}
	}
	return all
}

// String is the part of a server's name that follows what it is.
func (l layout) String() string {
	text := fmt.Sprintf("%d member", l.members)
	if l.members > 1 {
		text += "s"
	}
	if l.fsync {
		return text + ", fsync"
	}
	return text + ", no fsync"
}
