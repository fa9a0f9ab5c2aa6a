package child

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// await returns when the command has ended. It is not reaped: until then no other process or group gets
// its number.
func (c *Child) await() {
	for {
		var info unix.Siginfo
		options := unix.WEXITED | unix.WNOWAIT
		if c.system.foreground {
			options |= unix.WSTOPPED
		}
		err := unix.Waitid(unix.P_PID, c.PID(), &info, options, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err == nil && info.Code == stopped:
			c.resumeStopped()
		default:
			return
		}
	}
}

// stopped is CLD_STOPPED, which x/sys does not have.
const stopped = 5

// resumeStopped resumes a command that was stopped from the terminal: the lock goes on, and the shell that
// could resume it does not know the group.
func (c *Child) resumeStopped() {
	var info unix.Siginfo // taken, for WNOWAIT has left it
	_ = unix.Waitid(unix.P_PID, c.PID(), &info, unix.WSTOPPED|unix.WNOHANG, nil)
	c.wake()
	if c.spec.Resumed != nil {
		c.spec.Resumed()
	}
}
