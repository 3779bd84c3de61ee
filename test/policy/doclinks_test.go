// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"go/ast"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// memberLink is a doc link to a field or a method: [Type.Member], and not [Type.Member](page).
var memberLink = regexp.MustCompile(`\[\*?([A-Z]\w*)\.([A-Z]\w*)\](?:[^(:\w]|$)`)

// qualified is a type, with the directory of its package.
type qualified struct{ dir, name string }

// typeInfo is what a type declares, and the types whose members it has as well.
type typeInfo struct {
	members  []string
	embedded []qualified
	// open: it embeds a type of another module, which may have any member.
	open bool
}

type typeIndex map[qualified]*typeInfo

// TestDocLinksResolve: a doc link [Type.Member] of a package names a member of that type in it.
func TestDocLinksResolve(t *testing.T) {
	types, files := typeIndex{}, map[string]*ast.File{}
	for _, name := range goFiles(t) {
		files[name] = testproc.Try(parseFile(filepath.Join(root, name), nil)).Or(t)
		types.add(path.Dir(name), files[name])
	}
	for name, file := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, link := range types.unresolved(path.Dir(name), file) {
			t.Errorf("%s: the doc link %s names no member of a type of this package", name, link)
		}
	}
}

// get returns a type, for additions.
func (ti typeIndex) get(of qualified) *typeInfo {
	if ti[of] == nil {
		ti[of] = &typeInfo{}
	}
	return ti[of]
}

// add adds the types and methods of a file in a directory.
func (ti typeIndex) add(dir string, file *ast.File) {
	dirs := map[string]string{} // by the name of the import: of packages of the repository
	for _, i := range file.Imports {
		imported, _ := strconv.Unquote(i.Path.Value)
		name := path.Base(imported)
		if i.Name != nil {
			name = i.Name.Name
		}
		if in, ok := strings.CutPrefix(imported, module); ok {
			dirs[name] = in
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv != nil {
				of := ti.get(qualified{dir, receiverType(n.Recv.List[0].Type)})
				of.members = append(of.members, n.Name.Name)
			}
		case *ast.TypeSpec:
			of := ti.get(qualified{dir, n.Name.Name})
			switch declared := n.Type.(type) {
			case *ast.StructType:
				of.addFields(dir, dirs, declared.Fields)
			case *ast.InterfaceType:
				of.addFields(dir, dirs, declared.Methods)
			default:
				of.embed(dir, dirs, declared)
			}
		}
		return true
	})
}

func (i *typeInfo) addFields(dir string, dirs map[string]string, fields *ast.FieldList) {
	for _, field := range fields.List {
		for _, id := range field.Names {
			i.members = append(i.members, id.Name)
		}
		if field.Names == nil {
			i.embed(dir, dirs, field.Type)
		}
	}
}

// embed adds an embedded type, or the one that an alias or a definition names.
func (i *typeInfo) embed(dir string, dirs map[string]string, e ast.Expr) {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok {
		if star, ok := e.(*ast.StarExpr); ok {
			i.embed(dir, dirs, star.X)
		} else if name := receiverType(e); name != "" {
			i.members, i.embedded = append(i.members, name), append(i.embedded, qualified{dir, name})
		}
		return
	}
	i.members = append(i.members, selector.Sel.Name)
	if in, ok := dirs[nameOf(selector.X)]; ok {
		i.embedded = append(i.embedded, qualified{in, selector.Sel.Name})
	} else {
		i.open = true
	}
}

// has reports whether a type has a member, or may have it from another module.
func (ti typeIndex) has(of qualified, member string) bool {
	i := ti[of]
	return i != nil && (i.open || slices.Contains(i.members, member) ||
		slices.ContainsFunc(i.embedded, func(e qualified) bool { return e != of && ti.has(e, member) }))
}

// unresolved returns the doc links of a file whose member does not exist.
func (ti typeIndex) unresolved(dir string, file *ast.File) (links []string) {
	for _, group := range file.Comments {
		for _, found := range memberLink.FindAllStringSubmatch(group.Text(), -1) {
			if !ti.has(qualified{dir, found[1]}, found[2]) {
				links = append(links, "["+found[1]+"."+found[2]+"]")
			}
		}
	}
	return links
}

// TestUnresolved: the rule of TestDocLinksResolve, by examples.
func TestUnresolved(t *testing.T) {
	const declarations = `package x

import (
	"example.org/other"

	"` + module + `y"
)

type Plain struct{ Name string }

func (p *Plain) Close() {}

type Wide struct{ *Plain }

type Traits interface{ Capabilities() }

type Host struct{ y.Node }

type Open struct{ other.Type }
`
	for comment, want := range map[string]int{
		"see [Plain.Close] and [Plain.Name]":        0,
		"see [*Plain.Close], [Wide.Close].":         0,
		"see [Traits.Capabilities], [Host.UUID]":    0,
		"see [Open.Anything] of another module":     0,
		"see [Plain.Closed]":                        1,
		"see [Wide.Closed], [Absent.Name]":          2,
		"see [Host.Capabilities]":                   1,
		"a page, [Plain.Closed](page.md)":           0,
		"see [other.Closed], which is of a package": 0,
	} {
		types := typeIndex{}
		types.add("y", testproc.Try(parseFile("y.go", "package y\n\ntype Node struct{ UUID string }\n")).Or(t))
		file := testproc.Try(parseFile("x.go", declarations+"\n// "+comment+"\n")).Or(t)
		types.add("x", file)
		testproc.Equal(t, len(types.unresolved("x", file)), want, comment+": %d")
	}
}
