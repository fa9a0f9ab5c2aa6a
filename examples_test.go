package locks_test

import (
	"errors"
	"go/ast"
	"go/build"
	"go/doc"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// shown are the packages that users import, whose exported names have to be shown in examples. What fairqueue
// exports is for etcdlock.
var shown = []string{"etcdlock", "coord", "session", "embedtest"}

// spoken are methods that users call through packages fmt and errors.
var spoken = []string{"Error", "String", "Unwrap"}

// notShown are the exceptions, with reasons.
var notShown = map[string]string{
	"session.Session.Link":    "it is for this module's packages",
	"session.Session.Session": "it makes a Session a Source, and is called as such",
}

// showroom type-checks packages of the module as far as their uses of each other go, so that the
// Err of a Hold is not taken for that of a Session. What they import from elsewhere is missing,
// which makes errors that do not matter, and makes it fast.
type showroom struct {
	fset     *token.FileSet
	packages map[string]*types.Package
	used     map[types.Object]bool // in examples
}

func (s *showroom) Import(path string) (*types.Package, error) {
	if p := s.packages[path]; p != nil {
		return p, nil
	}
	var files []*ast.File
	switch {
	case path == "iter": // because of what loops over it yield
		file, err := parser.ParseFile(s.fset, "iter.go", "package iter; type Seq2[K, V any] func(yield func(K, V) bool)", 0)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	case under(path, module):
		dir := "." + strings.TrimPrefix(path, module)
		pkg, err := build.ImportDir(dir, 0)
		if err != nil {
			return nil, err
		}
		if files, err = s.parse(dir, pkg.GoFiles); err != nil {
			return nil, err
		}
	default:
		return nil, errors.New("not of this module")
	}
	p := s.check(path, files, nil)
	s.packages[path] = p
	return p, nil
}

func (s *showroom) parse(dir string, names []string) (files []*ast.File, err error) {
	for _, name := range names {
		file, err := parser.ParseFile(s.fset, filepath.Join(dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

func (s *showroom) check(path string, files []*ast.File, info *types.Info) *types.Package {
	config := types.Config{Importer: s, Error: func(error) {}, IgnoreFuncBodies: info == nil}
	p, _ := config.Check(path, s.fset, files, info)
	return p
}

// look notes what the files, which are of one package, use.
func (s *showroom) look(path string, files []*ast.File) {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	s.check(path, files, info)
	for _, object := range info.Uses {
		s.used[object] = true
	}
}

// examples returns the files of a package that are there for their examples.
func (s *showroom) examples(t *testing.T, name string) []*ast.File {
	t.Helper()
	pkg, err := build.ImportDir(name, 0)
	require.NoError(t, err)
	files, err := s.parse(name, slices.DeleteFunc(pkg.XTestGoFiles, func(file string) bool {
		return !strings.Contains(file, "example")
	}))
	require.NoError(t, err)
	require.NotEmpty(t, files, name)
	return files
}

func (s *showroom) programs(t *testing.T) {
	t.Helper()
	require.NoError(t, filepath.WalkDir("examples", func(dir string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		pkg, err := build.ImportDir(dir, 0)
		if none := (*build.NoGoError)(nil); errors.As(err, &none) {
			return nil
		}
		if err != nil {
			return err
		}
		names := pkg.GoFiles
		if entry.Name() == "testing" { // whose tests are what it shows
			names = append(names, pkg.TestGoFiles...)
		}
		files, err := s.parse(dir, names)
		if err == nil {
			s.look(module+"/"+filepath.ToSlash(dir), files)
		}
		return err
	}))
}

// missing returns the names exported by the package that no example uses. A use of a member of a type is
// a use of the type.
func (s *showroom) missing(t *testing.T, name string) (names []string) {
	t.Helper()
	p, err := s.Import(module + "/" + name)
	require.NoError(t, err)
	for _, n := range p.Scope().Names() {
		object := p.Scope().Lookup(n)
		if !object.Exported() {
			continue
		}
		used := s.used[object]
		for _, m := range members(object) {
			used = used || s.used[m]
			if !s.used[m] {
				names = append(names, name+"."+n+"."+m.Name())
			}
		}
		if !used {
			names = append(names, name+"."+n)
		}
	}
	return names
}

// members returns the exported fields and methods of a type, without those that another exported
// type has put there.
func members(object types.Object) (all []types.Object) {
	named, ok := object.Type().(*types.Named)
	if _, isType := object.(*types.TypeName); !ok || !isType {
		return nil
	}
	if fields, ok := named.Underlying().(*types.Struct); ok {
		for f := range fields.Fields() {
			if f.Exported() && !f.Embedded() {
				all = append(all, f)
			}
		}
	}
	var receiver types.Type = named
	if !types.IsInterface(named) {
		receiver = types.NewPointer(named)
	}
	for m := range types.NewMethodSet(receiver).Methods() {
		of := m.Obj().(*types.Func).Signature().Recv().Type()
		if p, ok := of.(*types.Pointer); ok {
			of = p.Elem()
		}
		n, ok := of.(*types.Named)
		if elsewhere := ok && n != named && n.Obj().Exported(); m.Obj().Exported() && !elsewhere && !slices.Contains(spoken, m.Obj().Name()) {
			all = append(all, m.Obj())
		}
	}
	return all
}

func newShowroom() *showroom {
	return &showroom{fset: token.NewFileSet(), packages: map[string]*types.Package{}, used: map[types.Object]bool{}}
}

func TestEveryExportedNameIsShownInAnExample(t *testing.T) {
	s := newShowroom()
	s.programs(t)
	for _, name := range shown {
		s.look(module+"/"+name+"_test", s.examples(t, name))
	}
	var missing []string
	for _, name := range shown {
		missing = append(missing, s.missing(t, name)...)
	}
	for name, reason := range notShown {
		i := slices.Index(missing, name)
		require.GreaterOrEqual(t, i, 0, "no exception is needed for %s (%s): it is shown, or not there", name, reason)
		missing = slices.Delete(missing, i, i+1)
	}
	if len(missing) > 0 {
		t.Errorf("no example_*_test.go of these packages, and no program below examples, uses\n%s", strings.Join(missing, "\n"))
	}
}

// An example without output is compiled and not run.
func TestEveryExampleIsRun(t *testing.T) {
	s := newShowroom()
	for _, name := range shown {
		for _, e := range doc.Examples(s.examples(t, name)...) {
			require.True(t, e.Output != "" || e.EmptyOutput, "%s: Example%s has no output", name, e.Name)
		}
	}
}

// The check itself has to notice, and to distinguish things of the same name.
func TestShowroomTellsNamesApart(t *testing.T) {
	s := newShowroom()
	file, err := parser.ParseFile(s.fset, "x.go", `package x
import ("context"; "`+module+`/etcdlock"; "`+module+`/session"; "`+module+`/embedtest")
func f(ctx context.Context, keeper *session.Keeper) {
	s, err := keeper.Session(ctx)
	_, _, _ = s.Err(), err, ctx.Err()
	for leader := range etcdlock.NewElection(keeper, "x").Observe(ctx) { _ = leader.Value }
	_ = embedtest.User{Name: "alice"}
}`, 0)
	require.NoError(t, err)
	s.look("x", []*ast.File{file})
	locks, sessions, tests := s.missing(t, "etcdlock"), s.missing(t, "session"), s.missing(t, "embedtest")
	for _, name := range []string{"session.Session.Err", "session.Keeper", "session.Session", "session.Keeper.Session"} {
		require.NotContains(t, sessions, name)
	}
	for _, name := range []string{"session.Session.Done", "session.Source", "session.Source.Session", "session.New"} {
		require.Contains(t, sessions, name)
	}
	for _, name := range []string{"etcdlock.Leader", "etcdlock.Leader.Value", "etcdlock.NewElection", "etcdlock.Election.Observe"} {
		require.NotContains(t, locks, name)
	}
	for _, name := range []string{"etcdlock.Hold.Err", "etcdlock.Leader.Key", "etcdlock.Hold", "etcdlock.ErrLost", "etcdlock.Locker.Lock"} {
		require.Contains(t, locks, name)
	}
	require.NotContains(t, tests, "embedtest.User.Name")
	require.Contains(t, tests, "embedtest.User.Password")
}
