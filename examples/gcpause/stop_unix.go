//go:build unix

package main

import (
	"syscall"

	"github.com/etcdlock/locks/examples/internal/stage"
)

const canStop = true

func stop(p *stage.Process) error { return p.Signal(syscall.SIGSTOP) }
func wake(p *stage.Process) error { return p.Signal(syscall.SIGCONT) }
