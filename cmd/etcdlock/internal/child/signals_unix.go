//go:build linux || darwin

package child

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

var (
	asking    = []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT}
	forwarded = append(asking, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH)
)

// Catch delivers the signals that are for the command, and SIGCONT and SIGTSTP, which are for this process.
// A signal that is ignored already, as by nohup, stays so. SIGPIPE is lost: that nobody reads this process's
// messages any more must not end the command.
func Catch(c chan<- os.Signal) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // if it were ignored, the command would ignore it, too
	for _, sig := range append(slices.Clone(forwarded), syscall.SIGCONT, syscall.SIGTSTP) {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
}

// Suspends reports whether sig is the one that suspends a process from the terminal.
func Suspends(sig os.Signal) bool { return sig == syscall.SIGTSTP }

// Resumes reports whether sig is the one that resumes a process.
func Resumes(sig os.Signal) bool { return sig == syscall.SIGCONT }

// asksToEnd reports whether a command is expected to end when it gets sig.
func asksToEnd(sig os.Signal) bool { return slices.Contains(asking, sig) }

// ends reports whether sig ends a process that does nothing about it.
func ends(sig os.Signal) bool { return sig != syscall.SIGWINCH }
