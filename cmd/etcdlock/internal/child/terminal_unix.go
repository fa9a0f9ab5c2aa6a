//go:build linux || darwin

package child

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// giveTerminal puts the group in the foreground of the terminal on standard input, if this process is
// there. Only the foreground may read from it, and gets its signals.
func giveTerminal(group int) bool {
	stdin := int(os.Stdin.Fd())
	foreground, err := unix.IoctlGetInt(stdin, unix.TIOCGPGRP)
	if err != nil || foreground != syscall.Getpgrp() {
		return false
	}
	return unix.IoctlSetPointerInt(stdin, unix.TIOCSPGRP, group) == nil
}

// takeTerminal puts this process's group back in the foreground, if the given one is there.
func takeTerminal(group int) {
	stdin := int(os.Stdin.Fd())
	if foreground, err := unix.IoctlGetInt(stdin, unix.TIOCGPGRP); err != nil || foreground != group {
		return
	}
	signal.Ignore(syscall.SIGTTOU) // by default it stops a process in the background that does this
	defer signal.Reset(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(stdin, unix.TIOCSPGRP, syscall.Getpgrp())
}
