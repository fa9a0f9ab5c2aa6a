package child

import (
	"os"
	"os/signal"
)

// Catch delivers interrupts from the console. They reach the command without this process.
func Catch(c chan<- os.Signal) { signal.Notify(c, os.Interrupt) }

// Suspends returns false: there is no such signal.
func Suspends(os.Signal) bool { return false }

// Resumes returns false: there is no such signal.
func Resumes(os.Signal) bool { return false }

func asksToEnd(os.Signal) bool { return true }

func ends(os.Signal) bool { return true }
