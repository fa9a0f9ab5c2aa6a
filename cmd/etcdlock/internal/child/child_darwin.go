package child

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const zombie = 5 // SZOMB

// Adopt does nothing: orphans go to process 1.
func Adopt() {}

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// await returns when the command has ended. It is not reaped: until then no other process or group gets
// its number. A command that is stopped at the terminal stays so until it gets SIGCONT.
func (c *Child) await() {
	for {
		found, err := unix.SysctlKinfoProc("kern.proc.pid", c.PID())
		if err != nil || found.Proc.P_stat == zombie {
			return
		}
		time.Sleep(look)
	}
}

// others returns the processes of the group that have not ended, besides the command, which has.
func (c *Child) others() []int {
	members, _ := unix.SysctlKinfoProcSlice("kern.proc.pgrp", c.PID())
	var found []int
	for _, m := range members {
		if pid := int(m.Proc.P_pid); pid != c.PID() && m.Proc.P_stat != zombie {
			found = append(found, pid)
		}
	}
	return found
}
