package versions

import (
	"os/exec"
	"syscall"
)

// endWithUs has a child killed when this process ends in whatever way.
func endWithUs(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
