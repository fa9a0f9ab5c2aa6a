package versions

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// release is a version of etcd to test against.
type release struct {
	name   string // 3.5
	module string // what builds it, below servers/; empty if nothing does

	once   sync.Once
	built  binaries
	absent string // why there is no server
	noCtl  string // why there is no etcdctl

	server lazyServer
}

// binaries are the paths of what could be had.
type binaries struct{ etcd, etcdctl string }

var releases = []*release{
	{name: "3.4"},
	{name: "3.5", module: "v35"},
	{name: "3.6", module: "v36"},
	{name: "3.7", module: "v37"},
}

// binaries builds or finds the programs of the release, once.
func (r *release) binaries(t *testing.T) binaries {
	t.Helper()
	r.once.Do(func() {
		if r.module == "" {
			r.find(t.Context())
			return
		}
		// What does not build is a mistake here or a registry out of reach, not
		// something that cannot be had: it fails, here and in every later test.
		r.absent = "its build has failed"
		r.built = build(t, r.module)
		r.absent = ""
	})
	if r.module != "" && r.absent != "" {
		t.Fatalf("etcd %s: %s", r.name, r.absent)
	}
	if r.absent != "" {
		t.Skipf("etcd %s is not available: %s", r.name, r.absent)
	}
	return r.built
}

// build relies on Go's build cache: the first time takes a minute or so, later ones link.
func build(t *testing.T, module string) binaries {
	t.Helper()
	dir, into := filepath.Join("servers", module), filepath.Join(scratch, module)
	// Read so that go test knows that its cached result depends on the version.
	_, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", into+"/", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build of %s: %v\n%s", module, err, out)
	}
	return binaries{etcd: filepath.Join(into, "etcd"), etcdctl: filepath.Join(into, "etcdctl")}
}

// find looks for programs of the version that somebody has installed.
func (r *release) find(ctx context.Context) {
	suffix := "_" + strings.ReplaceAll(r.name, ".", "")
	r.built.etcd, r.absent = program(ctx, "etcd", "ETCD"+suffix, r.name, "--version")
	r.built.etcdctl, r.noCtl = program(ctx, "etcdctl", "ETCDCTL"+suffix, r.name, "version")
}

// program returns the path of a program of that version, or why there is none.
func program(ctx context.Context, name, env, version, flag string) (path, why string) {
	asked, hint := os.Getenv(env), ""
	if asked == "" {
		asked, hint = name, fmt.Sprintf(", and %s names no other", env)
	}
	path, err := exec.LookPath(asked)
	if err != nil {
		return "", err.Error() + hint
	}
	cmd := exec.CommandContext(ctx, path, flag)
	cmd.Env = environment()
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Sprintf("%s %s: %v", path, flag, err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	if !strings.Contains(first, " "+version+".") {
		return "", fmt.Sprintf("%s is %q%s", path, first, hint)
	}
	return path, ""
}

// environment is this process's without what would configure etcd or etcdctl.
func environment() []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "ETCD") {
			env = append(env, v)
		}
	}
	return env
}
