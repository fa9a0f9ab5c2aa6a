package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// recipe returns the command below a comment of the recipes in the README.
func recipe(t *testing.T, comment string) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(text), "\n## From the shell\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, block, found := strings.Cut(section, "# "+comment)
	require.True(t, found, comment)
	_, block, _ = strings.Cut(block, "\n")
	block, _, _ = strings.Cut(block, "```")
	command, _, _ := strings.Cut(block, "\n#")
	require.Contains(t, command, "etcdlock ")
	return strings.TrimSpace(command)
}

// kitchen is a directory in which recipes run, with the programs that they call.
type kitchen struct {
	t   *testing.T
	dir string
}

func newKitchen(t *testing.T) kitchen {
	t.Helper()
	k := kitchen{t, t.TempDir()}
	require.NoError(t, os.Symlink(binary, filepath.Join(k.dir, "etcdlock")))
	return k
}

// program makes one of the programs that the recipes have in /usr/local/bin.
func (k kitchen) program(name, script string) kitchen {
	k.t.Helper()
	path := filepath.Join(k.dir, name)
	writeExecutable(k.t, path, "#!/bin/sh\ncd "+k.dir+"\n"+script+"\n")
	return k
}

// start runs a recipe, as on some machine.
func (k kitchen) start(command string) *tool {
	k.t.Helper()
	command = strings.ReplaceAll(command, "/usr/local/bin", k.dir)
	r := prepare(k.t, shared.Endpoints())
	r.cmd.Path, r.cmd.Args = "/bin/sh", []string{"sh", "-c", command}
	r.cmd.Env = append(r.cmd.Env, "PATH="+k.dir+":"+os.Getenv("PATH"))
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a signal to the group reaches the tool behind the shell
	r.start()
	k.t.Cleanup(func() { _ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) })
	return r
}

// group signals all of the recipe's processes but those in the group of a command under a lock.
func group(t *testing.T, r *tool, sig syscall.Signal) {
	t.Helper()
	require.NoError(t, syscall.Kill(-r.cmd.Process.Pid, sig))
}

func (k kitchen) file(name string) string {
	text, err := os.ReadFile(filepath.Join(k.dir, name))
	if err != nil {
		return ""
	}
	return string(text)
}

func (k kitchen) write(name string) {
	k.t.Helper()
	require.NoError(k.t, os.WriteFile(filepath.Join(k.dir, name), nil, 0o600))
}

func TestRecipeOfACronJobRunsItOnce(t *testing.T) {
	t.Parallel()
	k := newKitchen(t).program("nightly", "echo done >>log")
	command := recipe(t, "A cron job")
	var machines []*tool
	for range 4 {
		machines = append(machines, k.start(command))
	}
	for _, m := range machines {
		require.Zero(t, m.code())
	}
	require.Zero(t, k.start(command).code(), "the clock of another machine is behind")
	require.Equal(t, "done\n", k.file("log"))
	remove(t, "nightly") // for the next run of the test
}

func TestRecipeOfAMigrationRunsItBeforeEveryStart(t *testing.T) {
	t.Parallel()
	k := newKitchen(t).
		program("migrate", "mkdir alone || echo overlap >>log; test -e migrated || echo migrated >>log; touch migrated; sleep 0.1; rmdir alone").
		program("server", "test -e migrated && echo started >>log")
	command := recipe(t, "A migration")
	var replicas []*tool
	for range 3 {
		replicas = append(replicas, k.start(command))
	}
	for _, r := range replicas {
		require.Zero(t, r.code())
	}
	require.Equal(t, "migrated\nstarted\nstarted\nstarted\n", k.file("log"))

	broken := newKitchen(t).program("migrate", "exit 3").program("server", "touch started")
	require.Equal(t, 3, broken.start(command).code())
	require.NoFileExists(t, filepath.Join(broken.dir, "started"))
}

func TestRecipeOfADaemonRunsItOnTheLeader(t *testing.T) {
	t.Parallel()
	k := newKitchen(t).program("scheduler", "echo leading; while :; do sleep 0.02; done")
	command := recipe(t, "A daemon")
	first := k.start(command)
	first.says("leading")
	second := k.start(command)
	inLine(t, "scheduler", 2)
	require.Empty(t, second.out.String())
	group(t, first, syscall.SIGTERM)
	first.code()
	second.says("leading")
	group(t, second, syscall.SIGTERM)
	second.code()
	inLine(t, "scheduler", 0)
}

func TestRecipeOfBackupsRunsThreeAtATime(t *testing.T) {
	t.Parallel()
	k := newKitchen(t).program("backup", `touch running.$$; ls running.* | wc -l >>counts; until test -e go; do sleep 0.02; done; rm running.$$; echo done >>log`)
	command := recipe(t, "At most three")
	var machines []*tool
	const all = 5
	for range all {
		machines = append(machines, k.start(command))
	}
	running := func() int {
		found, err := filepath.Glob(filepath.Join(k.dir, "running.*"))
		require.NoError(t, err)
		return len(found)
	}
	eventually(t, "three that run and two that wait", func() bool {
		return running() == 3 && len(tickets(t, "backups")) == all
	})
	k.write("go")
	for _, m := range machines {
		require.Zero(t, m.code())
	}
	require.Equal(t, strings.Repeat("done\n", all), k.file("log"))
	for line := range strings.Lines(k.file("counts")) {
		n, err := strconv.Atoi(strings.TrimSpace(line))
		require.NoError(t, err)
		require.LessOrEqual(t, n, 3)
	}
}

// tickets are the keys of a queue, without the size of a semaphore.
func tickets(t *testing.T, name string) (found []string) {
	t.Helper()
	for _, key := range keys(t, name) {
		if !strings.Contains(key, "!") {
			found = append(found, key)
		}
	}
	return found
}

func TestRecipeOfAGuardedWriteIsRefusedAfterALoss(t *testing.T) {
	t.Parallel()
	k := newKitchen(t).program("report", "touch begun; until test -e go; do sleep 0.02; done; echo text")
	command := recipe(t, "A write")
	_, rest, _ := strings.Cut(command, "etcdlock put ")
	key := strings.Fields(rest)[0]
	write := func() *tool {
		_ = os.Remove(filepath.Join(k.dir, "begun"))
		_ = os.Remove(filepath.Join(k.dir, "go"))
		r := k.start(command)
		eventually(t, "the work", func() bool { return exists(k.dir, "begun") })
		return r
	}
	value := func() string {
		answer, err := shared.Client(t).Get(within(t), key)
		require.NoError(t, err)
		require.Len(t, answer.Kvs, 1)
		return string(answer.Kvs[0].Value)
	}
	kept := write()
	k.write("go")
	require.Zero(t, kept.code())
	require.Equal(t, "text", value())

	late := write()
	group(t, late, syscall.SIGSTOP) // the tool cannot end the command any more
	remove(t, "report")
	_, err := shared.Client(t).Put(within(t), key, "of the next owner")
	require.NoError(t, err)
	k.write("go")
	late.complains("nothing was written, the lock is lost")
	group(t, late, syscall.SIGCONT)
	require.Equal(t, 124, late.code())
	require.Equal(t, "of the next owner", value())
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}
