package main

import (
	"os/exec"
	"syscall"
)

// endWithUs has a child killed when this process ends in whatever way. It also keeps a
// Ctrl-C at the terminal from the child, which is to be stopped after its clients.
func endWithUs(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
