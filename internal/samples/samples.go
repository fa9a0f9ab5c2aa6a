// Package samples compiles the Go samples of Markdown files. It is for tests.
package samples

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Sample is a block of a document that is marked as Go.
type Sample struct {
	Document string
	Line     int // of the first line of code
	Code     string
}

// Scope is what samples may use without saying so.
type Scope struct {
	Imports map[string]string // paths of packages, by name
	Prelude string            // declarations
}

// Check requires that the documents have samples, which are formatted and compile as packages of the module in the
// working directory.
func (s Scope) Check(t *testing.T, documents ...string) {
	t.Helper()
	var all []Sample
	for _, document := range documents {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, In(document, string(text))...)
	}
	if len(all) == 0 {
		t.Fatal("there is no sample")
	}
	for _, sample := range all {
		formatted, err := format.Source([]byte(sample.Code))
		if err != nil || string(formatted) != sample.Code {
			t.Fatalf("%s:%d is not formatted as gofmt does it: %v", sample.Document, sample.Line, err)
		}
	}
	if output, err := s.Compile(t.TempDir(), all); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
}

// In returns the samples of a document's text.
func In(document, text string) (found []Sample) {
	var in *Sample
	for i, line := range strings.Split(text, "\n") {
		switch {
		case in == nil && strings.TrimSpace(line) == "```go":
			in = &Sample{Document: document, Line: i + 2}
		case in != nil && strings.TrimSpace(line) == "```":
			found = append(found, *in)
			in = nil
		case in != nil:
			in.Code += line + "\n"
		}
	}
	return found
}

// Compile builds each sample as a package of the module in the working directory, and returns what the go command says.
// The packages exist only for that command. Dir is for its files.
func (s Scope) Compile(dir string, all []Sample) (output string, err error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	prelude, err := s.withImports(s.Prelude)
	if err != nil {
		return "", fmt.Errorf("the prelude: %w", err)
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	args := []string{"build", "-overlay", filepath.Join(dir, "overlay.json")}
	for i, sample := range all {
		code, err := s.source(sample)
		if err != nil {
			return "", fmt.Errorf("%s:%d: %w", sample.Document, sample.Line, err)
		}
		pkg := fmt.Sprint("sample", i)
		args = append(args, "./"+pkg)
		for name, content := range map[string]string{"sample.go": code, "prelude.go": prelude} {
			file := filepath.Join(dir, fmt.Sprint(i, name))
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				return "", err
			}
			overlay.Replace[filepath.Join(root, pkg, name)] = file
		}
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), text, 0o600); err != nil {
		return "", err
	}
	out, err := exec.Command("go", args...).CombinedOutput()
	return string(out), err
}

// source makes a file of the code: declarations stay as they are, statements get a function around them.
func (s Scope) source(sample Sample) (string, error) {
	at := fmt.Sprintf("//line %s:%d\n", sample.Document, sample.Line)
	code := at + sample.Code
	if _, err := parse(code); err != nil {
		code = "func _() (_ error) {\n" + at + sample.Code + "return\n}\n"
		file, err := parse(code)
		if err != nil {
			return "", err
		}
		code = strings.TrimSuffix(code, "return\n}\n") + uses(file) + "return\n}\n"
	}
	return s.withImports(code)
}

// uses uses the variables of the first function, which readers of a sample use further on.
func uses(file *ast.File) (statements string) {
	function, ok := file.Decls[0].(*ast.FuncDecl)
	if !ok {
		return ""
	}
	for _, statement := range function.Body.List {
		assign, ok := statement.(*ast.AssignStmt)
		if !ok || assign.Tok != token.DEFINE {
			continue
		}
		for _, left := range assign.Lhs {
			if name, ok := left.(*ast.Ident); ok && name.Name != "_" {
				statements += "_ = " + name.Name + "\n"
			}
		}
	}
	return statements
}

func parse(code string) (*ast.File, error) {
	return parser.ParseFile(token.NewFileSet(), "", "package sample\n"+code, 0)
}

// withImports adds a package clause and the imports that the code needs.
func (s Scope) withImports(code string) (string, error) {
	file, err := parse(code)
	if err != nil {
		return "", err
	}
	needed := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok {
			if name, ok := selector.X.(*ast.Ident); ok && s.Imports[name.Name] != "" {
				needed[name.Name] = true
			}
		}
		return true
	})
	var out strings.Builder
	out.WriteString("package sample\n")
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		fmt.Fprintf(&out, "import %s %q\n", name, s.Imports[name])
	}
	out.WriteString(code)
	return out.String(), nil
}
