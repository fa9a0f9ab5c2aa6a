//go:build !unix

package main

import (
	"errors"

	"github.com/etcdlock/locks/examples/internal/stage"
)

const canStop = false

func stop(*stage.Process) error { return errors.ErrUnsupported }
func wake(*stage.Process) error { return errors.ErrUnsupported }
