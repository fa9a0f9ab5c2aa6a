package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdlock/locks/session"
)

func newPut(c *connection) *cobra.Command {
	var lock string
	cmd := &cobra.Command{
		Use:   "put KEY [VALUE]",
		Short: "Write to etcd while the surrounding lock is held",
		Long: `Put writes VALUE, or what it reads from standard input, to KEY in etcd. It works in a command of
"etcdlock run" or "etcdlock elect", and needs the same connection flags.

Etcd itself compares: if one of the surrounding locks is not held any more, nothing is written, and the exit
code is 124. So a command that was suspended cannot overwrite what the next owner wrote.`,
		Args: mistakes(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return mistakef("KEY is empty")
			}
			held, err := chosen(lock)
			if err != nil {
				return err
			}
			value := ""
			if len(args) == 2 {
				value = args[1]
			} else {
				text, err := io.ReadAll(os.Stdin)
				if err != nil {
					return fmt.Errorf("reading the value: %w", err)
				}
				value = string(text)
			}
			return put(cmd, c, held, args[0], value)
		},
	}
	registerLock(cmd, &lock)
	return cmd
}

func registerLock(cmd *cobra.Command, lock *string) {
	cmd.Flags().StringVar(lock, "lock", "", "which surrounding lock counts, by `NAME`; all by default")
}

// chosen returns the surrounding locks that count.
func chosen(name string) ([]surrounding, error) {
	all, err := readSurrounding()
	switch {
	case err != nil:
		return nil, err
	case len(all) == 0:
		return nil, mistakef("there is no surrounding lock: %s is not set", heldVariable)
	case name == "":
		return all, nil
	}
	found := slices.DeleteFunc(all, func(s surrounding) bool { return s.Name != name })
	if len(found) == 0 {
		return nil, mistakef("no surrounding lock is called %q", name)
	}
	return found, nil
}

// put writes while all of held are.
func put(cmd *cobra.Command, c *connection, held []surrounding, key, value string) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	defer closeClient(client)
	ctx, cancel := c.limited(cmd.Context())
	defer cancel()
	var guards []clientv3.Cmp
	for _, s := range held {
		guards = append(guards, s.guards()...)
	}
	attempts, written := 0, false
	err = session.Retry(ctx, func(ctx context.Context) error {
		attempts++
		answer, err := client.Txn(ctx).If(guards...).Then(clientv3.OpPut(key, value)).Commit()
		if err == nil {
			written = answer.Succeeded
		}
		return err
	})
	switch {
	case attempts <= 1 && isRefusal(err):
		return fmt.Errorf("put %q: nothing was written: %w", key, err)
	case err != nil:
		return fmt.Errorf("put %q: it may or may not have been written: %w", key, err)
	case written:
		return nil
	case attempts > 1:
		return &exitError{code: exitLost, err: fmt.Errorf("put %q: the lock is lost; an attempt without an answer may have written before", key)}
	}
	return &exitError{code: exitLost, err: fmt.Errorf("put %q: nothing was written, the lock is lost", key)}
}

// isRefusal reports whether etcd or its client answered that the write is not done.
func isRefusal(err error) bool {
	switch code, _ := answer(err); code {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.ResourceExhausted:
		return true
	}
	return false
}
