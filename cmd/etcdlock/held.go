package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newHeld(c *connection) *cobra.Command {
	var lock string
	cmd := &cobra.Command{
		Use:   "held",
		Short: "Ask etcd whether the surrounding lock is held",
		Long: `Held returns exit code 0 if the surrounding locks are held, and 124 if one is not. It works in a command
of "etcdlock run" or "etcdlock elect", and needs the same connection flags. The answer is true at the moment
when etcd gives it; a write is better guarded by "etcdlock put".`,
		Args: mistakes(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			held, err := chosen(lock)
			if err != nil {
				return err
			}
			client, err := c.client()
			if err != nil {
				return err
			}
			defer closeClient(client)
			ctx, cancel := c.limited(cmd.Context())
			defer cancel()
			for _, s := range held {
				there, err := s.held(ctx, client)
				if err != nil {
					return fmt.Errorf("asking for %q: %w", s.Name, err)
				}
				if !there {
					return &exitError{code: exitLost, err: fmt.Errorf("%q is not held any more", s.Name)}
				}
			}
			return nil
		},
	}
	registerLock(cmd, &lock)
	return cmd
}
