package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/examples/internal/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m, program) }

func TestTheStory(t *testing.T) {
	t.Parallel()
	out := stagetest.Play(t)
	require.Contains(t, out, "FOUND   bob has been paid 2 times")
	require.Contains(t, out, "PASSED  everybody has been paid once")
}
