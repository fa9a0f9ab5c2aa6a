package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const (
	// completionTimeout bounds how long a shell waits for the names of locks.
	completionTimeout = time.Second

	// completions is how many names are worth showing.
	completions = 1000
)

// completeNames makes the shell complete names of locks where a command takes one.
func completeNames(root *cobra.Command, c *connection) {
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "inspect", "release", "ls", "top", "exporter":
			cmd.ValidArgsFunction = c.completeName(cobra.ShellCompDirectiveNoFileComp)
		case "run", "elect": // what follows the name is a command
			cmd.ValidArgsFunction = c.completeName(cobra.ShellCompDirectiveDefault)
		}
		for _, flag := range []string{"also", "name"} {
			if cmd.Flags().Lookup(flag) != nil {
				_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
					return c.namesWith(cmd.Context(), text), cobra.ShellCompDirectiveNoFileComp
				})
			}
		}
		if cmd.Flags().Lookup("lock") != nil {
			_ = cmd.RegisterFlagCompletionFunc("lock", completeSurrounding)
		}
	}
}

// completeName completes the first argument, and leaves others to the shell.
func (c *connection) completeName(others cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, others
		}
		return c.namesWith(cmd.Context(), toComplete), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeSurrounding completes the names of the locks around this process.
func completeSurrounding(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
	all, _ := readSurrounding() // an error is not the shell's business
	for _, s := range all {
		names = append(names, s.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// namesWith returns names of locks that begin with the text, if etcd answers in time. An error is not the shell's business.
func (c *connection) namesWith(ctx context.Context, text string) (names []string) {
	if c.readEnvironment(os.LookupEnv) != nil || c.asks() {
		return nil
	}
	c.dial = min(c.dial, completionTimeout) // which bounds the authentication
	client, err := c.client()
	if err != nil {
		return nil
	}
	defer closeClient(client)
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	for q, err := range c.queuesBelow(ctx, client, text) {
		if err != nil || len(names) == completions {
			break
		}
		if strings.HasPrefix(q.Name, text) && printable(q.Name) == q.Name {
			names = append(names, q.Name)
		}
	}
	return names
}

// asks reports whether connecting would ask for a password on the terminal.
func (c *connection) asks() bool {
	return c.token == "" && c.user != "" && c.password == "" && !strings.Contains(c.user, ":")
}
