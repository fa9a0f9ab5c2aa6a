package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var shellInText = regexp.MustCompile("(?s)```(?:sh|bash)\n(.*?)```")

// lint skips the test if the program is not there.
func lint(t *testing.T, program string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("not checked here: %v", err)
	}
	output, err := exec.Command(program, args...).CombinedOutput()
	require.NoError(t, err, "%s", output)
}

func TestManPagesHaveNoErrors(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, exec.Command(binary, "man", dir).Run())
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	lint(t, "mandoc", append([]string{"-T", "lint", "-W", "error"}, pages...)...)
}

func TestShellInDocumentsIsClean(t *testing.T) {
	var files []string
	for _, document := range []string{"../../README.md", "../../docs/shell.md", "../../deploy/README.md"} {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, block := range shellInText.FindAllStringSubmatch(string(text), -1) {
			file := filepath.Join(t.TempDir(), strings.TrimSuffix(filepath.Base(document), ".md")+".sh")
			require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n"+block[1]), 0o600))
			files = append(files, file)
		}
	}
	require.NotEmpty(t, files)
	lint(t, "shellcheck", append([]string{"--severity=warning"}, files...)...)
}
