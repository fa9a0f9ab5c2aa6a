package locks_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdlock/locks/internal/samples"
)

// documents are the Markdown files whose samples are compiled and whose names are checked.
func documents(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return append(files, "README.md")
}

// sampleImports are the packages that a sample may use without importing them.
var sampleImports = map[string]string{
	"clientv3":  "go.etcd.io/etcd/client/v3",
	"context":   "context",
	"coord":     module + "/coord",
	"embedtest": module + "/embedtest",
	"errors":    "errors",
	"etcdlock":  module + "/etcdlock",
	"fairqueue": module + "/fairqueue",
	"fmt":       "fmt",
	"http":      "net/http",
	"log":       "log",
	"session":   module + "/session",
	"sqlfence":  module + "/sqlfence",
	"status":    module + "/status",
	"strconv":   "strconv",
	"sync":      "sync",
	"testing":   "testing",
	"time":      "time",
	"zap":       "go.uber.org/zap",
}

// samplePrelude declares what samples use without declaring it.
const samplePrelude = `
var (
	ctx      context.Context
	client   *clientv3.Client
	err      error
	fence    etcdlock.Fence
	h        *etcdlock.Hold
	logger   *zap.Logger
	orders   *etcdlock.Mutex
	password string
	sessions *session.Keeper
	token    etcdlock.Token
)

type Service struct{}

func NewService(*clientv3.Client, ...session.Option) *Service { panic("a sample is not run") }

func (*Service) Stopped() <-chan struct{} { panic("a sample is not run") }
`

func TestSamplesInDocumentsCompile(t *testing.T) {
	samples.Scope{Imports: sampleImports, Prelude: samplePrelude}.Check(t, documents(t)...)
}

// The check itself has to notice mistakes, and to say where they are.
func TestSampleThatDoesNotCompileIsReported(t *testing.T) {
	all := samples.In("x.md", "text\n\n```go\nh, err := orders.Lock(ctx)\nh.Unlok(ctx)\nreturn 1\n```\n\n```sh\nnot Go\n```\n")
	require.Len(t, all, 1)
	output, err := samples.Scope{Imports: sampleImports, Prelude: samplePrelude}.Compile(t.TempDir(), all)
	require.Error(t, err)
	require.Contains(t, output, "x.md:5")
	require.Contains(t, output, "Unlok")
	require.Contains(t, output, "x.md:6")
}

// source is what the module's core declares, by all the names under which a document may speak of it:
// Name, Type.Member, package.Name, package.Type.Member, and files with and without their directories.
type source struct {
	names  map[string]bool
	embeds map[string][]string // types that a type embeds
	has    map[string][]string // members of a type
}

// core are the directories whose names documents use.
var core = []string{
	"session", "internal", "fairqueue", "etcdlock", "concurrency", "status", "coord", "sqlfence", "embedtest", "examples", "bench",
	"adapters",
}

func parseCore(t *testing.T) *source {
	t.Helper()
	s := &source{names: map[string]bool{}, embeds: map[string][]string{}, has: map[string][]string{}}
	for _, top := range core {
		err := filepath.WalkDir(top, func(path string, entry os.DirEntry, err error) error {
			if os.IsNotExist(err) && path == top {
				return nil
			}
			if err != nil {
				return err
			}
			slash := filepath.ToSlash(path)
			if entry.IsDir() {
				s.add(slash)
				s.add(slash + "/")
				return nil
			}
			s.add(slash)
			s.add(entry.Name())
			if !strings.HasSuffix(path, ".go") {
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err == nil {
				s.file(file)
			}
			return err
		})
		require.NoError(t, err)
	}
	for name := range s.has {
		s.promote(name, name, 0)
	}
	return s
}

func (s *source) add(name string) { s.names[name] = true }

func (s *source) file(file *ast.File) {
	pkg := file.Name.Name
	s.add(pkg)
	top := func(name string) {
		s.add(name)
		s.add(pkg + "." + name)
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				top(d.Name.Name)
			} else {
				s.member(pkg, typeName(d.Recv.List[0].Type), d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						top(name.Name)
					}
				case *ast.TypeSpec:
					top(spec.Name.Name)
					s.typeMembers(pkg, spec)
				}
			}
		}
	}
}

func (s *source) typeMembers(pkg string, spec *ast.TypeSpec) {
	fields := &ast.FieldList{}
	switch typ := spec.Type.(type) {
	case *ast.StructType:
		fields = typ.Fields
	case *ast.InterfaceType:
		fields = typ.Methods
	case *ast.Ident, *ast.SelectorExpr: // an alias has the members of what it stands for
		s.has[spec.Name.Name] = append(s.has[spec.Name.Name], "")
		s.embeds[spec.Name.Name] = append(s.embeds[spec.Name.Name], typeName(typ))
	}
	for _, field := range fields.List {
		for _, name := range field.Names {
			s.member(pkg, spec.Name.Name, name.Name)
		}
		if len(field.Names) == 0 {
			s.member(pkg, spec.Name.Name, typeName(field.Type))
			s.embeds[spec.Name.Name] = append(s.embeds[spec.Name.Name], typeName(field.Type))
		}
	}
}

func (s *source) member(pkg, typ, name string) {
	s.add(name)
	s.add(typ + "." + name)
	s.add(pkg + "." + typ + "." + name)
	s.has[typ] = append(s.has[typ], name)
}

// promote gives a type the members of those that it embeds.
func (s *source) promote(to, from string, depth int) {
	for _, name := range s.has[from] {
		s.add(to + "." + name)
	}
	if depth < 4 {
		for _, embedded := range s.embeds[from] {
			s.promote(to, embedded, depth+1)
		}
	}
}

// typeName returns the name of a type without package, pointer and type arguments.
func typeName(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.IndexListExpr:
		return typeName(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	fence    = regexp.MustCompile("(?ms)^```.*?^```$")
	// anyName is an identifier, several with dots between, or a path; a call may follow.
	anyName = regexp.MustCompile(`^([A-Za-z_]\w*(?:[./]\w+)*/?)(?:\(.*\))?$`)
	// exportedName is one that users see. A word in capitals is SQL or the like.
	exportedName = regexp.MustCompile(`^((?:(?:session|fairqueue|etcdlock|coord|embedtest)\.)?[A-Z]\w*[a-z]\w*(?:\.[A-Z]\w*)?)(?:\(.*\))?$`)
)

// foreignNames are names in documents that other programs and packages have declared.
var foreignNames = map[string][]string{
	"docs/choosing.md":    {"ModRevision"},
	"docs/coming-from.md": {"ErrDeadlock"},
	"docs/kubernetes.md": {
		"GracefulShutdownTimeout", "LeaderElectionReleaseOnCancel", "LeaseLock", "OnStartedLeading", "OnStoppedLeading",
		"Recreate", "ReleaseOnCancel",
	},
	"docs/observability.md": {"EtcdlockTrustLow", "WithHoldSpans", "WithLeaderElectionStatus", "WithNames"},
	"docs/operating.md": {
		"BackoffWaitBetween", "DialKeepAliveTime", "DialKeepAliveTimeout", "DialTimeout", "Endpoints", "Logger",
		"MaxUnaryRetries", "Password", "PermitWithoutStream", "Username",
	},
}

// unknownNames returns what a document has in code font that has the form of a name and is not in the source.
func (s *source) unknownNames(document string, text []byte) (unknown []string) {
	form := exportedName
	switch document {
	case "docs/reading.md":
		form = anyName
	case "docs/coming-from.md":
		text = lastCells(text)
	}
	text = fence.ReplaceAll(text, nil)
	for _, span := range codeSpan.FindAllSubmatch(text, -1) {
		name := form.FindSubmatch(span[1])
		if name == nil || s.names[string(name[1])] || slices.Contains(foreignNames[document], string(name[1])) {
			continue
		}
		unknown = append(unknown, string(name[1]))
	}
	return unknown
}

// lastCells returns the last cells of the rows of tables: those before are about other libraries.
func lastCells(text []byte) []byte {
	var cells [][]byte
	for line := range bytes.Lines(text) {
		if row := bytes.TrimSuffix(bytes.TrimSpace(line), []byte(" |")); len(row) > 0 && row[0] == '|' {
			cells = append(cells, row[bytes.LastIndexByte(row, '|'):])
		}
	}
	return bytes.Join(cells, []byte("\n"))
}

func TestNamesInDocumentsExist(t *testing.T) {
	s := parseCore(t)
	for _, document := range documents(t) {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		require.Empty(t, s.unknownNames(document, text), "%s: these names are not in the source", document)
	}
}

// The check itself has to notice.
func TestNameThatDoesNotExistIsReported(t *testing.T) {
	s := parseCore(t)
	text := []byte("`Hold.Txn` `Hold.Err` `Term.Err` `session.Keep` `Hold.Gone` `Lokc` `SELECT` `lower` `h.Txn(ctx)`\n" +
		"```\n`InABlock`\n```\n")
	require.Equal(t, []string{"Hold.Gone", "Lokc"}, s.unknownNames("README.md", text))
	text = []byte("`Hold.Txn` `etcdlock/hold.go` `etcdlock/gone.go` `hold.go` `nosuchthing` `fairqueue/` `x<lease>`")
	require.Equal(t, []string{"etcdlock/gone.go", "nosuchthing"}, s.unknownNames("docs/reading.md", text))
	text = []byte("| `TheirName` | `Hold.Gone`, `NewMutex` |\n")
	require.Equal(t, []string{"Hold.Gone"}, s.unknownNames("docs/coming-from.md", text))
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// brokenLinks returns the links of a document to files or headings that do not exist.
func brokenLinks(t *testing.T, document string, text []byte) (broken []string) {
	t.Helper()
	for _, m := range link.FindAllSubmatch(fence.ReplaceAll(text, nil), -1) {
		target := string(m[1])
		if strings.Contains(target, "://") {
			continue
		}
		name, anchor, _ := strings.Cut(target, "#")
		content := text
		if name != "" {
			file := filepath.Join(filepath.Dir(document), name)
			info, err := os.Stat(file)
			if err == nil && !info.IsDir() {
				content, err = os.ReadFile(file)
			}
			if err != nil {
				broken = append(broken, target)
				continue
			}
		}
		if anchor != "" && !slices.Contains(anchors(content), anchor) {
			broken = append(broken, target)
		}
	}
	return broken
}

// anchors returns the names by which the headings of a document can be linked to.
func anchors(text []byte) (names []string) {
	for line := range strings.Lines(string(fence.ReplaceAll(text, nil))) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && line[0] == '#' {
			name := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(title)), " ", "-")
			names = append(names, regexp.MustCompile(`[^\w-]`).ReplaceAllString(name, ""))
		}
	}
	return names
}

func TestLinksInDocumentsLeadSomewhere(t *testing.T) {
	more, err := filepath.Glob("*/README.md")
	require.NoError(t, err)
	for _, document := range append(append(documents(t), "CHANGELOG.md", "SECURITY.md"), more...) {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		require.Empty(t, brokenLinks(t, document, text), document)
	}
}

// The check itself has to notice.
func TestBrokenLinkIsReported(t *testing.T) {
	text := []byte("# A title, it is\n[a](choosing.md) [b](choosing.md#fencing) [c](#a-title-it-is) [d](https://etcd.io) [e](..)\n" +
		"[f](gone.md) [g](choosing.md#gone) [h](#gone)\n")
	require.Equal(t, []string{"gone.md", "choosing.md#gone", "#gone"}, brokenLinks(t, "docs/x.md", text))
}
