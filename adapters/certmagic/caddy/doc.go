// Package caddylock is the Caddy module caddy.storage.etcdlock: certificates in etcd, and locks that are not lost while a
// Caddy works. Build Caddy with it by importing it, or with xcaddy.
//
//	{
//		storage etcdlock {
//			endpoints etcd-1:2379 etcd-2:2379 etcd-3:2379
//		}
//	}
//
// Package certmagiclock says what is guaranteed, and what happens on a loss; a loss is logged as a warning.
//
// A reload of the configuration keeps the client and the session if the storage's settings are the same, so locks that are
// held at that time stay held. With other settings, what was begun with the old ones ends with them.
package caddylock
