package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
)

// Formats of what is printed.
const (
	asTable = "table"
	asWide  = "wide"
	asJSON  = "json"
	asNames = "names"
)

// format is the flag -o, and -w as etcdctl has it.
type format struct {
	name    string
	allowed []string
}

func (f *format) Set(text string) error {
	if text == "simple" {
		text = f.allowed[0]
	}
	if !slices.Contains(f.allowed, text) {
		return fmt.Errorf("one of %s", strings.Join(f.allowed, ", "))
	}
	f.name = text
	return nil
}

func (f *format) Type() string { return "format" }

func (f *format) String() string { return f.name }

// register adds the flags. The first of the allowed formats is the default.
func (f *format) register(cmd *cobra.Command, allowed ...string) {
	f.name, f.allowed = allowed[0], allowed
	usage := "one of " + strings.Join(allowed, ", ")
	cmd.Flags().VarP(f, "output", "o", usage)
	cmd.Flags().VarP(f, "write-out", "w", "the same as --output")
	for _, flag := range []string{"output", "write-out"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp))
	}
}

func printJSON(w io.Writer, value any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(value)
}

// printTable prints rows in columns.
func printTable(to io.Writer, rows [][]string) error {
	_, err := io.WriteString(to, aligned(rows, nil))
	return err
}

// printNames prints a name in each line.
func printNames(to io.Writer, names []string) error {
	var text strings.Builder
	for _, name := range names {
		text.WriteString(name + "\n")
	}
	_, err := io.WriteString(to, text.String())
	return err
}

// printable replaces what would change the terminal or the columns: names and labels are others' texts.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '�'
		}
		return r
	}, text)
}
