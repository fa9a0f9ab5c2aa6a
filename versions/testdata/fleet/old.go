//go:build !upgrades

package main

import (
	"context"

	"github.com/etcdlock/locks/etcdlock"
)

func (m *member) upgradeable() (string, func(context.Context) (*etcdlock.Hold, error)) {
	return "s", m.lock.RLock
}

func (m *member) upgrade(*etcdlock.Hold) {}
