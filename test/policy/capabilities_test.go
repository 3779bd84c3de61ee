// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// noCapabilities are interfaces of the SDK that a driver does not choose to have.
var noCapabilities = []string{"Driver", "FileReader"}

// TestCapabilitiesAreListed: the package comment of the SDK and the guide for authors name each
// optional interface of a driver: nothing else tells an author that there is one more.
func TestCapabilitiesAreListed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	sdk := testproc.Try(os.ReadFile(filepath.Join(root, "plugins/doc.go"))).Or(t)
	guide := testproc.Try(os.ReadFile(filepath.Join(root, "docs/writing-a-driver.md"))).Or(t)
	found := 0
	for _, name := range testproc.Try(filepath.Glob(filepath.Join(root, "plugins/*.go"))).Or(t) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file := testproc.Try(parser.ParseFile(token.NewFileSet(), name, nil, 0)).Or(t)
		ast.Inspect(file, func(n ast.Node) bool {
			spec, isType := n.(*ast.TypeSpec)
			if !isType || !spec.Name.IsExported() || slices.Contains(noCapabilities, spec.Name.Name) {
				return true
			}
			if _, is := spec.Type.(*ast.InterfaceType); !is {
				return true
			}
			found++
			if !regexp.MustCompile(`\b` + spec.Name.Name + `\b`).Match(sdk) {
				t.Errorf("plugins/doc.go does not name %s", spec.Name.Name)
			}
			if !strings.Contains(string(guide), "`"+spec.Name.Name+"`") {
				t.Errorf("docs/writing-a-driver.md does not name %s", spec.Name.Name)
			}
			return true
		})
	}
	if found < 10 {
		t.Errorf("%d optional interfaces are found", found)
	}
}
