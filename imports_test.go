package locks_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/etcdlock/locks"

// layers maps a package to the project's packages that it may import.
var layers = map[string][]string{
	"internal/request":         nil,
	"internal/coalesce":        {"internal/request"},
	"internal/link":            {"internal/request", "internal/coalesce"},
	"internal/follow":          {"internal/request", "internal/coalesce", "internal/link"},
	"internal/within":          nil,
	"session":                  {"internal/request", "internal/coalesce", "internal/link"},
	"internal/keys":            {"internal/request", "internal/coalesce", "internal/link", "session"},
	"fairqueue":                {"internal/request", "internal/coalesce", "internal/link", "internal/follow", "internal/keys", "internal/within", "session"},
	"etcdlock":                 {"internal/request", "internal/coalesce", "internal/link", "internal/follow", "internal/within", "session", "fairqueue"},
	"concurrency":              {"session", "etcdlock"},
	"coord":                    {"internal/request", "internal/follow", "session", "fairqueue", "etcdlock"},
	"sqlfence":                 {"etcdlock"},
	"status":                   {"internal/request", "session", "etcdlock"},
	"adapters/internal/metric": {"session", "etcdlock"},
}

// allowed is what the layers may import besides the standard library: whatever
// is added here ends up in the build of every user.
var allowed = []string{
	"go.etcd.io/etcd/api/v3",
	"go.etcd.io/etcd/client/v3",
	"google.golang.org/grpc",
}

// testOnly is what production code must not pull in, wherever it lives.
var testOnly = []string{
	module + "/embedtest",
	"github.com/anishathalye/porcupine",
	"github.com/stretchr/testify",
	"go.etcd.io/etcd/server",
	"go.uber.org/goleak",
}

// under reports whether an import path is root or below it.
func under(imp, root string) bool {
	return imp == root || strings.HasPrefix(imp, root+"/")
}

// layerOf returns the layer that a package belongs to, as one below a layer does, and the layers below that.
func layerOf(pkg string) (layer string, below []string) {
	for layer, below := range layers {
		if under(pkg, layer) {
			return layer, below
		}
	}
	return "", nil
}

// violations returns a line for each import that the package, named by its
// directory relative to the module's root, must not have.
func violations(pkg string, imports []string) []string {
	var found []string
	for _, imp := range imports {
		if why := violation(pkg, imp); why != "" {
			found = append(found, pkg+" imports "+imp+": "+why)
		}
	}
	return found
}

func violation(pkg, imp string) string {
	top, _, _ := strings.Cut(pkg, "/")

	switch top {
	case "examples":
		return ""
	case "embedtest":
		for layer := range layers {
			if under(imp, module+"/"+layer) {
				return "embedtest serves the tests of all packages and depends on none"
			}
		}
		return ""
	}

	for _, root := range testOnly {
		if under(imp, root) {
			return "for tests only"
		}
	}

	layer, below := layerOf(pkg)
	if layer == "" {
		return ""
	}
	if under(imp, module) {
		for _, layer := range append([]string{layer}, below...) {
			if under(imp, module+"/"+layer) {
				return ""
			}
		}
		return "against the order of the layers"
	}
	if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") && imp != "C" {
		return "" // The standard library has no dot in its first element; cgo is not part of it.
	}
	if imp == "golang.org/x/sys/unix" {
		return ""
	}
	for _, root := range allowed {
		if under(imp, root) {
			return ""
		}
	}
	return "not among the allowed dependencies"
}

// productionImports returns the imports of all non-test files of the module by
// package directory. It reads the files itself, so that files for other
// platforms and build tags count as well.
func productionImports(t *testing.T) map[string][]string {
	t.Helper()
	imports := map[string][]string{}
	fset := token.NewFileSet()
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if file == "." {
				return nil
			}
			// What the go command leaves out of ./... as well.
			if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(file, "go.mod")); err == nil {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(fset, file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		pkg := path.Dir(filepath.ToSlash(file))
		imports[pkg] = append(imports[pkg], "") // Known even without imports.
		for _, spec := range parsed.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			imports[pkg] = append(imports[pkg], imp)
		}
		return nil
	})
	require.NoError(t, err)
	for pkg, list := range imports {
		slices.Sort(list)
		imports[pkg] = slices.Compact(list)[1:]
	}
	return imports
}

func TestImports(t *testing.T) {
	imports := productionImports(t)
	pkgs := slices.Sorted(maps.Keys(imports))

	// A walk that found nothing would pass for the wrong reason.
	require.Subset(t, pkgs, []string{"embedtest", "internal/link", "session", "fairqueue", "etcdlock", "examples/quickstart"})

	var found []string
	for _, pkg := range pkgs {
		found = append(found, violations(pkg, imports[pkg])...)
	}
	require.Empty(t, found, strings.Join(found, "\n"))
}

func TestViolations(t *testing.T) {
	tests := []struct {
		pkg, imp string
		bad      bool
	}{
		// Layers.
		{pkg: "session", imp: module, bad: true},
		{pkg: "session", imp: module + "/fairqueue", bad: true},
		{pkg: "session", imp: module + "/etcdlock", bad: true},
		{pkg: "session", imp: module + "/internal/keys", bad: true},
		{pkg: "session", imp: module + "/session/internal/backoff"},
		{pkg: "session", imp: module + "/internal/link"},
		{pkg: "internal/link", imp: module + "/internal/coalesce"},
		{pkg: "internal/link", imp: module + "/session", bad: true},
		{pkg: "internal/coalesce", imp: module + "/internal/link", bad: true},
		{pkg: "internal/request", imp: module + "/internal/coalesce", bad: true},
		{pkg: "fairqueue", imp: module + "/internal/link"},
		{pkg: "session/internal/backoff", imp: module + "/fairqueue", bad: true},
		{pkg: "fairqueue", imp: module + "/session"},
		{pkg: "fairqueue", imp: module + "/etcdlock", bad: true},
		{pkg: "etcdlock", imp: module + "/session"},
		{pkg: "etcdlock", imp: module + "/fairqueue"},
		{pkg: "etcdlock", imp: module + "/examples/quickstart", bad: true},
		{pkg: "embedtest", imp: module + "/session", bad: true},
		{pkg: "embedtest", imp: module + "/fairqueue", bad: true},
		{pkg: "embedtest", imp: module + "/etcdlock", bad: true},
		{pkg: "embedtest", imp: module + "/internal/closer"},

		// What is for tests only.
		{pkg: "session", imp: module + "/embedtest", bad: true},
		{pkg: "fairqueue", imp: "github.com/stretchr/testify/require", bad: true},
		{pkg: "etcdlock", imp: "go.uber.org/goleak", bad: true},
		{pkg: "etcdlock", imp: "github.com/anishathalye/porcupine", bad: true},
		{pkg: "etcdlock", imp: "go.etcd.io/etcd/server/v3/embed", bad: true},
		{pkg: ".", imp: module + "/embedtest", bad: true},
		{pkg: "internal/keys", imp: module + "/embedtest", bad: true},
		{pkg: "internal/keys", imp: "github.com/stretchr/testify/require", bad: true},
		{pkg: "internal/keys", imp: "go.etcd.io/etcd/server/v3/embed", bad: true},
		{pkg: "embedtest", imp: "go.etcd.io/etcd/server/v3/embed"},
		{pkg: "embedtest", imp: "github.com/stretchr/testify/require"},
		{pkg: "examples/quickstart", imp: module + "/embedtest"},
		{pkg: "examples/quickstart", imp: module + "/etcdlock"},

		// Dependencies of the layers.
		{pkg: "session", imp: "context"},
		{pkg: "session", imp: "log/slog"},
		{pkg: "session", imp: "C", bad: true},
		{pkg: "session", imp: "go.etcd.io/etcd/client/v3"},
		{pkg: "fairqueue", imp: "go.etcd.io/etcd/client/v3/clientv3util"},
		{pkg: "fairqueue", imp: "go.etcd.io/etcd/api/v3/mvccpb"},
		{pkg: "fairqueue", imp: "go.etcd.io/etcd/client/pkg/v3/types", bad: true},
		{pkg: "etcdlock", imp: "google.golang.org/grpc/codes"},
		{pkg: "etcdlock", imp: "google.golang.org/grpcfork", bad: true},
		{pkg: "etcdlock", imp: "golang.org/x/sys/unix"},
		{pkg: "etcdlock", imp: "golang.org/x/sys/windows", bad: true},
		{pkg: "etcdlock", imp: "go.uber.org/zap", bad: true},
	}
	for _, tt := range tests {
		t.Run(tt.pkg+" "+tt.imp, func(t *testing.T) {
			found := violations(tt.pkg, []string{tt.imp})
			if tt.bad {
				require.Len(t, found, 1)
				require.Contains(t, found[0], tt.imp)
			} else {
				require.Empty(t, found)
			}
		})
	}

	// One bad import does not hide another, and good ones are not reported.
	require.Len(t, violations("session", []string{"context", module + "/etcdlock", "go.uber.org/zap"}), 2)
}
