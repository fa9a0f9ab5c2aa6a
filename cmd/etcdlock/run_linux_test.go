package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"go.etcd.io/etcd/client/v3/concurrency"
)

func TestRunExitsWithTheCommandsCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		line string
		code int
	}{
		{"exit 0", 0}, {"exit 3", 3}, {"kill -9 $$", 137}, {"kill -TERM $$", 143},
	} {
		require.Equal(t, c.code, start(t, "run", name(t), "sh", "-c", c.line).code(), c.line)
	}
	require.Empty(t, keys(t, name(t)))
}

func TestRunPassesFlagsAfterTheNameToTheCommand(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"run", name(t), "--", "echo", "-n", "--", "x"},
		{"run", name(t), "echo", "-n", "--", "x"},
		{"lock", "--", name(t), "echo", "-n", "--", "x"},
		{"run", name(t), "-c", "printf '%s' '-- x'"},
		{"run", "-c", `printf '%s' "$1 $2"`, name(t), "--", "x"},
	} {
		r := start(t, args...)
		require.Zero(t, r.code())
		require.Equal(t, "-- x", r.out.String(), args)
	}
}

func TestRunTellsTheCommandOfItsLock(t *testing.T) {
	t.Parallel()
	r := start(t, "run", name(t), "--", "sh", "-c", `echo "$ETCDLOCK_NAME $ETCDLOCK_LOCK_KEY $ETCDLOCK_TOKEN $ETCDLOCK_LEASE/$ETCD_LOCK_KEY $ETCD_LOCK_REV/$ETCDLOCK_SLOT"`)
	require.Zero(t, r.code())
	require.Regexp(t, "^"+name(t)+" (etcdlock/"+name(t)+`/\S+) (\d+) [0-9a-f]+/etcdlock/`+name(t)+`/\S+ \d+/\n$`, r.out.String())

	slots := start(t, "run", "--limit", "2", "--slots", name(t)+"-slots", "sh", "-c", "echo slot $ETCDLOCK_SLOT; $ETCDLOCK held")
	require.Zero(t, slots.code())
	require.Equal(t, "slot 0\n", slots.out.String())
}

func TestRunThatDoesNotGetTheLockSaysWhoHasIt(t *testing.T) {
	t.Parallel()
	holder(t, name(t))
	quiet := start(t, "run", "-n", name(t), "true")
	require.Equal(t, 75, quiet.code())
	require.Empty(t, quiet.errors.String())
	require.Equal(t, 9, start(t, "run", "-n", "-E", "9", name(t), "true").code())
	require.Equal(t, 75, start(t, "run", "-s", "-w", "0", name(t), "true").code())

	var waited *tool
	for wait := 0.2; waited == nil || !strings.Contains(waited.errors.String(), "ahead"); wait *= 2 { // until it is long enough for an answer
		waited = start(t, "run", "-w", fmt.Sprint(wait), name(t), "true")
		require.Equal(t, 75, waited.code())
		require.Less(t, wait, patience.Seconds())
	}
	require.Regexp(t, `^etcdlock: "`+name(t)+`" not obtained after .*; 1 ahead, owned by .* \(etcdlock, process \d+\) since .*, token \d+\n$`, waited.errors.String())
}

func TestRunSharesWithReaders(t *testing.T) {
	t.Parallel()
	r := start(t, "run", "-s", name(t))
	r.says("etcdlock/")
	require.Zero(t, start(t, "run", "-s", "-n", name(t), "true").code())
	require.Equal(t, 75, start(t, "run", "-x", "-n", name(t), "true").code())
}

func TestRunLimitCountsPermits(t *testing.T) {
	t.Parallel()
	h := start(t, "run", "--limit", "3", "--permits", "2", name(t))
	h.says("etcdlock/")
	require.Equal(t, 75, start(t, "run", "-n", "--limit", "3", "--permits", "2", name(t), "true").code())
	require.Zero(t, start(t, "run", "-n", "--limit", "3", name(t), "true").code())
	wrong := start(t, "run", "-n", "--limit", "4", name(t), "true")
	require.Equal(t, 64, wrong.code())
	require.Equal(t, 1, strings.Count(wrong.errors.String(), "\n"))
}

func TestRunAlsoTakesAllOrNothing(t *testing.T) {
	t.Parallel()
	h := holder(t, name(t)+"-b")
	require.Equal(t, 75, start(t, "run", "-n", "--also", name(t)+"-b", name(t)+"-a", "true").code())
	require.Empty(t, keys(t, name(t)+"-a"))
	h.signal(syscall.SIGKILL)
	<-h.ended
	remove(t, name(t)+"-b")
	r := start(t, "run", "--also", name(t)+"-b", name(t)+"-a", "sh", "-c", "$ETCDLOCK put "+name(t)+" x && $ETCDLOCK run "+name(t)+"-b true")
	require.Equal(t, 64, r.code(), "a part of a Multi is held, too")
	require.Empty(t, keys(t, name(t)+"-b"))
}

func TestRunOnceLetsOneOfManyDoTheJob(t *testing.T) {
	t.Parallel()
	first := start(t, "run", "--once", "1h", name(t), "echo", "done")
	require.Zero(t, first.code())
	require.Equal(t, "done\n", first.out.String())
	second := start(t, "run", "--once", "1h", name(t), "echo", "done")
	require.Zero(t, second.code())
	require.Empty(t, second.out.String())
	remove(t, name(t)) // for the next run of the test
}

func TestRunKeepsTheLockForTheMinimum(t *testing.T) {
	t.Parallel()
	require.Equal(t, 3, start(t, "run", "--min-hold", "1h", name(t), "sh", "-c", "exit 3").code())
	require.Equal(t, 75, start(t, "run", "-n", name(t), "true").code())
	remove(t, name(t)) // for the next run of the test
}

func TestRunVerboseSaysHowLongTheLockTookOrWhyNot(t *testing.T) {
	t.Parallel()
	taken := start(t, "run", "--verbose", name(t), "true")
	require.Zero(t, taken.code())
	require.Regexp(t, `^etcdlock: took "`+name(t)+`" after \S+, token \d+\n$`, taken.errors.String())
	holder(t, name(t))
	refused := start(t, "run", "--verbose", "-n", name(t), "true")
	require.Equal(t, 75, refused.code())
	require.Regexp(t, `"`+name(t)+`" not obtained after \S+: .*busy.*: held by .+, in line for \S+; 0 waiting`, complaint(t, refused))
}

func TestRunStandsInTheQueueOfEtcdctl(t *testing.T) {
	t.Parallel()
	s, err := concurrency.NewSession(shared.Client(t))
	require.NoError(t, err)
	m := concurrency.NewMutex(s, name(t))
	require.NoError(t, m.Lock(within(t)))
	require.Equal(t, 75, start(t, "run", "--prefix", "-n", name(t), "true").code())
	waiting := start(t, "run", "--prefix", name(t), "true")
	eventually(t, "a second place", func() bool {
		answer, err := shared.Client(t).Get(within(t), name(t)+"/", withPrefix)
		return err == nil && len(answer.Kvs) == 2
	})
	require.NoError(t, m.Unlock(within(t)))
	require.Zero(t, waiting.code())
}

func TestRunWithoutCommandHoldsUntilASignal(t *testing.T) {
	t.Parallel()
	h := holder(t, name(t))
	require.Len(t, keys(t, name(t)), 1)
	h.signal(syscall.SIGTERM)
	require.Zero(t, h.code())
	require.Empty(t, keys(t, name(t)))

	lost := holder(t, name(t))
	remove(t, name(t))
	require.Equal(t, 124, lost.code())
}

func TestRunRefusesANestedRunOfTheSameLock(t *testing.T) {
	t.Parallel()
	r := start(t, "run", name(t), "sh", "-c", "$ETCDLOCK run "+name(t)+"-other $ETCDLOCK run "+name(t)+" echo no")
	require.Equal(t, 64, r.code())
	require.Empty(t, r.out.String())
	require.Contains(t, r.errors.String(), "would wait for itself")

	elsewhere := start(t, "run", name(t), "sh", "-c", "$ETCDLOCK run --namespace other "+name(t)+" echo yes")
	require.Zero(t, elsewhere.code())
	require.Equal(t, "yes\n", elsewhere.out.String())
}

func TestPutWritesOnlyWhileTheLockIsHeld(t *testing.T) {
	t.Parallel()
	key := "data/" + name(t)
	r := start(t, "run", "--on-lost", "warn", name(t), "sh", "-c", `
		$ETCDLOCK put `+key+` 1 && $ETCDLOCK held && echo written
		while $ETCDLOCK held; do :; done
		echo 2 | $ETCDLOCK put `+key+`; echo "refused: $?"
		$ETCDLOCK put --lock nosuch `+key+` 2; echo "mistake: $?"`)
	r.says("written")
	remove(t, name(t))
	require.Equal(t, 124, r.code(), "though the command returns 0")
	require.Equal(t, "written\nrefused: 124\nmistake: 64\n", r.out.String())
	require.Contains(t, r.errors.String(), "nothing was written, the lock is lost")
	answer, err := shared.Client(t).Get(within(t), key)
	require.NoError(t, err)
	require.Equal(t, "1", string(answer.Kvs[0].Value))

	require.Equal(t, 64, start(t, "put", key, "3").code(), "without a surrounding lock")
}

func TestPutThatEtcdRefusesHasWrittenNothing(t *testing.T) {
	t.Parallel()
	r := start(t, "run", name(t), "sh", "-c", `
		$ETCDLOCK put '' 1; echo "$?"
		head -c 3000000 /dev/zero | $ETCDLOCK put data/`+name(t)+`; echo "$?"`)
	require.Zero(t, r.code())
	require.Equal(t, "64\n125\n", r.out.String())
	require.Contains(t, r.errors.String(), "KEY is empty")
	require.Contains(t, r.errors.String(), "nothing was written: ")
	require.NotContains(t, r.errors.String(), "may or may not")
}

func TestPutRefusesALockWithoutKeys(t *testing.T) {
	t.Parallel()
	r := prepare(t, shared.Endpoints(), "put", "data/"+name(t), "1")
	r.cmd.Env = append(r.cmd.Env, `ETCDLOCK_HELD=[{"name":"n","queues":["etcdlock/n"],"token":1}]`)
	require.Equal(t, 64, r.start().code())
	require.Contains(t, r.errors.String(), "nothing would be guarded")
}

func TestPutIsGuardedByAllSurroundingLocks(t *testing.T) {
	t.Parallel()
	r := start(t, "run", "--on-lost", "warn", name(t)+"-out", binary, "run", name(t)+"-in", "sh", "-c", `
		echo ready; while $ETCDLOCK held 2>/dev/null; do :; done
		$ETCDLOCK put --lock `+name(t)+"-in data/"+name(t)+` 1; echo "inner: $?"
		$ETCDLOCK put data/`+name(t)+` 1; echo "all: $?"`)
	r.says("ready")
	remove(t, name(t)+"-out")
	require.Equal(t, 124, r.code())
	require.Equal(t, "ready\ninner: 0\nall: 124\n", r.out.String())
}
