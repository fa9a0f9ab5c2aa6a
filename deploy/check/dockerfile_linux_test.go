package check

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

var instruction = regexp.MustCompile(`(?m)^([A-Z]+) (.*)$`)

// stages returns the instructions of each stage of the Dockerfile.
func stages() (map[string][][]string, error) {
	text, err := os.ReadFile("../Dockerfile")
	if err != nil {
		return nil, err
	}
	all := map[string][][]string{}
	stage := ""
	for _, m := range instruction.FindAllStringSubmatch(string(text), -1) {
		if m[1] == "FROM" {
			_, stage, _ = strings.Cut(m[2], " AS ")
		}
		all[stage] = append(all[stage], m[1:])
	}
	return all, nil
}

// buildImage runs what a stage of the Dockerfile runs, here, and returns the path of the binary.
func buildImage(stage, binary string) (string, error) {
	all, err := stages()
	if err != nil {
		return "", err
	}
	for _, i := range all[stage] {
		if i[0] != "RUN" {
			continue
		}
		build := exec.Command("sh", "-c", strings.ReplaceAll(i[1], "/out/", scratch+"/"))
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", i[1], err, out)
		}
		return filepath.Join(scratch, binary), nil
	}
	return "", fmt.Errorf("the stage %q builds nothing", stage)
}

func TestImageHasWhatItsStagesBuild(t *testing.T) {
	all, err := stages()
	require.NoError(t, err)
	for _, image := range []string{"controller", "shop", "etcdlock"} {
		require.Equal(t, []string{"FROM", "scratch AS " + image}, all[image][0])
		for _, i := range all[image] {
			if i[0] != "COPY" {
				continue
			}
			from := regexp.MustCompile(`^--from=(\S+) (\S+) (\S+)$`).FindStringSubmatch(i[1])
			require.NotNil(t, from, i)
			require.Contains(t, all, from[1])
			if from[1] != "source" {
				require.Contains(t, all[from[1]][1][1], "-o "+from[2], "what is built there")
			}
		}
	}
}

func TestBinaryNeedsNothingOfTheSystem(t *testing.T) {
	path := theTool(t)
	file, err := elf.Open(path)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	libraries, err := file.ImportedLibraries()
	require.NoError(t, err)
	require.Empty(t, libraries)
	for _, p := range file.Progs {
		require.NotEqual(t, elf.PT_INTERP, p.Type)
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	const most = 40 << 20
	require.LessOrEqual(t, info.Size(), int64(most))
	t.Logf("%.1f MiB", float64(info.Size())/(1<<20))
}

func TestBinaryRunsInAnEmptyRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("chroot needs root")
	}
	dir := t.TempDir()
	binary, err := os.ReadFile(theTool(t))
	require.NoError(t, err)
	writeExecutable(t, filepath.Join(dir, "etcdlock"), string(binary))
	cmd := exec.Command("/etcdlock", "version")
	cmd.Path, cmd.Dir, cmd.Env = "/etcdlock", "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "etcdlock ")
}
