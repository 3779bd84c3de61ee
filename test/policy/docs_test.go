// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestDocsBeginWithTheName: a doc comment that begins with another name than the declared one is
// left over from a renaming. Names in a group need none, for the group has a comment; the comment
// of an example is a text of its own, which the documentation shows above it.
func TestDocsBeginWithTheName(t *testing.T) {
	for _, name := range goFiles(t) {
		if generated(name) {
			continue
		}
		content := testproc.Try(parseFile(filepath.Join(root, name), nil)).Or(t)
		for _, wrong := range misnamedDocs(content) {
			t.Errorf("%s: %s", name, wrong)
		}
	}
}

func parseFile(name string, content any) (*ast.File, error) {
	return parser.ParseFile(token.NewFileSet(), name, content, parser.ParseComments|parser.SkipObjectResolution)
}

// misnamedDocs finds the declarations of a file whose doc comment begins with something else, each
// with what that is.
func misnamedDocs(f *ast.File) (wrong []string) {
	check := func(doc *ast.CommentGroup, names ...string) {
		words := append(strings.Fields(doc.Text()), "", "")
		if slices.Contains([]string{"A", "An", "The"}, words[0]) {
			words = words[1:]
		}
		first := strings.TrimSuffix(strings.TrimRight(words[0], ",.:;()"), "'s")
		if first != "" && !slices.Contains(names, first) {
			wrong = append(wrong, "the doc comment of "+names[0]+" begins with "+first)
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if !strings.HasPrefix(d.Name.Name, "Example") {
				check(d.Doc, d.Name.Name)
			}
		case *ast.GenDecl:
			alone := !d.Lparen.IsValid()
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if alone {
						spec.Doc = d.Doc
					}
					check(spec.Doc, spec.Name.Name)
				case *ast.ValueSpec:
					var names []string
					for _, n := range spec.Names {
						names = append(names, n.Name)
					}
					if alone {
						check(d.Doc, names...)
					}
				}
			}
		}
	}
	return wrong
}

// TestMisnamedDocs: the check finds what it is for, and nothing else.
func TestMisnamedDocs(t *testing.T) {
	for source, want := range map[string][]string{
		"// f does.\nfunc f() {}":                            nil,
		"// g does.\nfunc f() {}":                            {"the doc comment of f begins with g"},
		"// Whatever.\nfunc (t T) Get() {}":                  {"the doc comment of Get begins with Whatever"},
		"// The T's are: many.\ntype T int":                  nil,
		"// A T: one.\ntype T int":                           nil,
		"// The table.\ntype T int":                          {"the doc comment of T begins with table"},
		"type (\n\t// U is.\n\tT int\n)":                     {"the doc comment of T begins with U"},
		"// b, and a, are two.\nvar a, b = 1, 2":             nil,
		"// c is.\nconst a = 1":                              {"the doc comment of a begins with c"},
		"// Two of them.\nconst (\n\t// one.\n\ta = iota\n)": nil,
		"//go:noinline\nfunc f() {}":                         nil,
		"// How it is used.\nfunc ExampleT() {}":             nil,
	} {
		f := testproc.Try(parseFile("x.go", "package x\n\n"+source+"\n")).Or(t)
		testproc.Samef(t, cmp.Diff(want, misnamedDocs(f)), "%s", source)
	}
}
