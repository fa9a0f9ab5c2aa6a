package testchild_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/etcdlock/locks/internal/testchild"
)

const variable = "TESTCHILD_TEST"

func init() {
	testchild.Be(variable, func(arguments []string) error {
		fmt.Println(arguments)
		switch arguments[0] {
		case "fails":
			return errors.New("a failure")
		case "talks":
			for {
				fmt.Println("more")
			}
		}
		return nil
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAProcessGetsItsArgumentsAndIsRead(t *testing.T) {
	p := testchild.Start(t, variable, "ends", "b")
	require.Equal(t, "[ends b]", p.Next(t))
	_, more := <-p.Lines
	require.False(t, more)
	p.Kill()
	require.Zero(t, p.ProcessState.ExitCode())
	require.Empty(t, os.Getenv(variable))
}

func TestAFailureIsPrinted(t *testing.T) {
	p := testchild.Start(t, variable, "fails")
	require.Equal(t, "[fails]", p.Next(t))
	require.Equal(t, "a failure", p.Next(t))
	for range p.Lines {
	}
	p.Kill()
	require.Equal(t, 1, p.ProcessState.ExitCode())
}

func TestAProcessThatIsNotReadIsKilled(t *testing.T) {
	p := testchild.Start(t, variable, "talks")
	p.Next(t)
	p.Kill()
	p.Kill()
	require.False(t, p.ProcessState.Success())
}
