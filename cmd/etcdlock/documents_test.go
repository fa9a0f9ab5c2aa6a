package main

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

var (
	commandInText = regexp.MustCompile("`etcdlock ([^`]+)`")
	variableName  = regexp.MustCompile(`ETCDLOCK_[A-Z_]+`)
)

// misread returns why the tool does not take a command line, or nil. The value of its last flag may be missing.
func misread(line string) error {
	root := newRoot()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	cmd, rest, err := root.Find(strings.Fields(line))
	switch {
	case err != nil:
		return err
	case cmd == root:
		return errors.New("no such command")
	}
	err = cmd.ParseFlags(rest)
	if errors.As(err, new(*pflag.ValueRequiredError)) {
		return nil
	}
	return err
}

func TestCommandsAndVariablesInDocumentsExist(t *testing.T) {
	for _, document := range []string{"../../README.md", "../../docs/shell.md", "../../deploy/README.md"} {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		commands := commandInText.FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, commands)
		for _, c := range commands {
			require.NoError(t, misread(c[1]), "%s: %s", document, c[1])
		}
		for _, name := range variableName.FindAllString(string(text), -1) {
			require.Contains(t, variables, name, document)
		}
	}
}

// The check itself has to notice.
func TestCommandThatDoesNotExistIsReported(t *testing.T) {
	require.Error(t, misread("nosuch x"))
	require.Error(t, misread("run --nosuch x true"))
	require.NoError(t, misread("run x true --nosuch"))
}
