//go:build upgrades

package main

import (
	"context"

	"github.com/etcdlock/locks/etcdlock"
)

func (m *member) upgradeable() (string, func(context.Context) (*etcdlock.Hold, error)) {
	if m.random.IntN(4) == 0 {
		return "u", m.lock.TryLockUpgradeable
	}
	return "u", m.lock.LockUpgradeable
}

func (m *member) upgrade(h *etcdlock.Hold) {
	for range m.random.IntN(3) {
		m.upgradeTo(h, h.Upgrade)
		if h.Downgrade(context.Background()) == nil {
			m.hold("u", h)
		}
	}
}
