// Command etcdlock runs programs under locks and elections that live in etcd, and shows their holders.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func main() { os.Exit(execute(os.Args[1:])) }

// execute runs the tool and returns its exit code. What went wrong is one line on standard error.
func execute(args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	if text := message(err); text != "" {
		say("%s", text)
	}
	return exitCode(err)
}

// say writes a line for people. Errors and commands may have line ends, and what others have chosen.
func say(format string, args ...any) {
	text := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	fmt.Fprintln(os.Stderr, "etcdlock: "+printable(text))
}

func newRoot() *cobra.Command {
	cobra.EnablePrefixMatching = true // as etcdctl has it
	root := &cobra.Command{
		Use:   "etcdlock",
		Short: "Locks and elections in etcd, for the shell",
		Long: `etcdlock runs programs under locks and elections that live in etcd, and shows their holders.

It connects as etcdctl does, with the same flags and ETCDCTL_ variables; a flag takes precedence.

Exit codes of run and elect: the command's; 128 and the number of a signal that ended it; 124 if the lock
was lost; 75 if it was not obtained; 69 if etcd cannot be reached; 77 if etcd refuses; 64 for a mistake in
the call; 126 and 127 if the command cannot be executed or found; 125 for anything else.`,
		Args:              mistakes(cobra.NoArgs),
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c := newConnection(root.PersistentFlags())
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return c.readEnvironment(os.LookupEnv) }
	root.SetFlagErrorFunc(unclear)
	root.AddCommand(newRun(c), newPut(c), newHeld(c), newElect(c), newLs(c), newTop(c), newWeb(c), newExporter(c), newInspect(c), newRelease(c), newDoctor(c), newWaitGraph(c), newDeadlocks(c), newVersion(), newMan())
	completeNames(root, c)
	refuseUnknownTopics(root)
	return root
}

// refuseUnknownTopics makes a wrong argument of help and completion a mistake. cobra shows some help instead, and exits
// with 0.
func refuseUnknownTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = mistakes(func(_ *cobra.Command, args []string) error {
				_, unknown, err := root.Find(args)
				if err == nil && len(unknown) > 0 {
					return fmt.Errorf("unknown command %q for %q", unknown[0], root.Name())
				}
				return err
			})
		case "completion":
			cmd.Args = mistakes(cobra.NoArgs)
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// mistakes makes errors of check mistakes in the call.
func mistakes(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return unclear(cmd, err)
		}
		return nil
	}
}

// unclear is a mistake that the help of cmd explains.
func unclear(cmd *cobra.Command, err error) error {
	return mistakef("%w; see %s --help", err, cmd.CommandPath())
}
