package kind_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/proxops/proxops/internal/kind"
)

// Differences between kinds are columns of the table or methods of a spec: no
// other package compares with a kind's name in a switch or an if.
func TestNoSwitchOnKinds(t *testing.T) {
	found := kindSwitches(t, filepath.Join(".."), func(dir string) bool { return dir == "kind" || dir == "pvesim" })
	for _, at := range found {
		t.Errorf("%s tells kinds apart by name; add a column to kind.All or a method to Spec", at)
	}
	if len(kindSwitches(t, "testdata", func(string) bool { return false })) != 2 {
		t.Error("the search does not find the two cases of its specimen")
	}
}

func kindSwitches(t *testing.T, root string, skip func(dir string) bool) []string {
	t.Helper()
	var found []string
	files := token.NewFileSet()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skip(d.Name()):
			return fs.SkipDir
		case d.IsDir(), strings.HasSuffix(path, "_test.go"), !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".go.txt"):
			return nil
		}
		f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil // the compiler says it better
		}
		ast.Inspect(f, func(n ast.Node) bool {
			var exprs []ast.Expr
			switch n := n.(type) {
			case *ast.CaseClause:
				exprs = n.List
			case *ast.BinaryExpr:
				if n.Op == token.EQL || n.Op == token.NEQ {
					exprs = []ast.Expr{n.X, n.Y}
				}
			}
			for _, e := range exprs {
				if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					if name, err := strconv.Unquote(lit.Value); err == nil {
						if _, is := kind.Lookup(name); is {
							found = append(found, files.Position(lit.Pos()).String())
						}
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
