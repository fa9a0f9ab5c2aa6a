package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/embedtest"
)

const installed = "/usr/local/bin/"

// settings returns the values of a unit's settings, by name.
func settings(t *testing.T, unit string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../systemd/" + unit)
	require.NoError(t, err)
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && line[0] != '#' {
			all[name] = value
		}
	}
	return all
}

// verify returns what systemd says about units in a directory; nothing if they are well.
func verify(t *testing.T, dir string) string {
	t.Helper()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here (Debian: apt-get install systemd)")
	}
	units, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	out, err := exec.Command(analyze, append([]string{"verify", "--man=no"}, units...)...).CombinedOutput()
	if err != nil {
		return string(out) + err.Error()
	}
	return string(out)
}

func TestUnitsAreWell(t *testing.T) {
	dir := t.TempDir()
	all, err := filepath.Glob("../systemd/*.[st]*")
	require.NoError(t, err)
	require.Len(t, all, 3)
	for _, unit := range all {
		text, err := os.ReadFile(unit)
		require.NoError(t, err)
		// The programs have to be there.
		here := strings.ReplaceAll(string(text), installed+"etcdlock", "/bin/true")
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(unit)), []byte(here), 0o600))
	}
	require.Empty(t, verify(t, dir))

	broken := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(broken, "x.service"), []byte("[Service]\nExecStart=/bin/true\nKillMoed=mixed\n"), 0o600))
	require.Contains(t, verify(t, broken), "KillMoed", "the check notices")
}

// started runs the command of a service as systemd would on a machine, with another program under the lock.
func started(t *testing.T, c *embedtest.Cluster, unit, machine, program string) *process {
	t.Helper()
	argv := strings.Fields(strings.ReplaceAll(settings(t, unit)["ExecStart"], "%H", machine))
	require.Equal(t, installed+"etcdlock", argv[0])
	argv[0] = theTool(t)
	last := len(argv) - 1
	require.True(t, strings.HasPrefix(argv[last], installed))
	argv[last] = program
	return run(t, []string{endpoints(c.Endpoints())}, argv...)
}

// clean reports whether systemd takes an exit code for a success.
func clean(unit map[string]string, code int) bool {
	return code == 0 || slices.Contains(strings.Fields(unit["SuccessExitStatus"]), strconv.Itoa(code))
}

func TestServiceRunsOnOneMachineAndMovesWhenItIsStopped(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t)
	const unit = "scheduler.service"
	require.Equal(t, "mixed", settings(t, unit)["KillMode"]) // SIGTERM goes to the tool alone
	program := script(t, "echo leading; while :; do sleep 0.02; done")
	first := started(t, c, unit, "m1", program)
	eventually(t, "a leader", func() bool { return strings.Contains(first.out.String(), "leading") })
	second := started(t, c, unit, "m2", program)
	eventually(t, "another candidate", func() bool { return candidates(t, c) == 2 })
	require.Empty(t, second.out.String())
	first.terminate()
	require.True(t, clean(settings(t, unit), first.code()), first.code())
	eventually(t, "the next leader", func() bool { return strings.Contains(second.out.String(), "leading") })
}

func candidates(t *testing.T, c *embedtest.Cluster) int64 {
	t.Helper()
	answer, err := c.Client(t).Get(within(t), "etcdlock/scheduler/", withPrefix)
	require.NoError(t, err)
	return answer.Count
}

func TestServiceIsNotRestartedForAMistake(t *testing.T) {
	t.Parallel()
	c := embedtest.Start(t, embedtest.WithAuth("secret"))
	for _, unit := range []string{"scheduler.service", "nightly.service"} {
		s := settings(t, unit)
		refused := started(t, c, unit, "m", "/bin/true").code()
		require.Contains(t, strings.Fields(s["RestartPreventExitStatus"]), strconv.Itoa(refused), "no user")
		wrong := run(t, []string{endpoints(c.Endpoints())}, theTool(t), "elect", "--nosuch").code()
		require.Contains(t, strings.Fields(s["RestartPreventExitStatus"]), strconv.Itoa(wrong))
		require.False(t, clean(s, refused))
	}
}

func TestTimerOfEveryMachineDoesTheJobOnce(t *testing.T) {
	t.Parallel()
	require.Empty(t, settings(t, "nightly.timer")["Persistent"])
	c := embedtest.Start(t)
	log := filepath.Join(t.TempDir(), "log")
	job := script(t, "echo done >>"+log)
	var machines []*process
	for _, name := range []string{"m1", "m2", "m3"} {
		machines = append(machines, started(t, c, "nightly.service", name, job))
	}
	for _, m := range machines {
		require.Zero(t, m.code())
	}
	late := started(t, c, "nightly.service", "m4", job)
	require.Zero(t, late.code())
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, "done\n", string(text))
}

func TestSettingsOfEtcdAreTheTools(t *testing.T) {
	for name := range settings(t, "etcd.env") {
		isVariable(t, name)
	}
}

// isVariable requires that the tool reads a variable.
func isVariable(t *testing.T, name string) {
	t.Helper()
	help, err := exec.Command(theTool(t), "run", "--help").Output()
	require.NoError(t, err)
	flag, ok := strings.CutPrefix(name, "ETCDCTL_")
	require.True(t, ok, name)
	require.Contains(t, string(help), "--"+strings.ToLower(strings.ReplaceAll(flag, "_", "-"))+" ", name)
}
