// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// establishedReceivers are receivers that stay although their letter begins no word of the type.
var establishedReceivers = map[string]string{"exchange": "x"}

// TestReceivers: the name of a receiver begins like a word of the type's name, and its letters
// occur in that name in this order: t of Tracker, tx of sharedTx, c or sc of statusCollector.
func TestReceivers(t *testing.T) {
	for _, name := range goFiles(t) {
		if generated(name) {
			continue
		}
		set := token.NewFileSet()
		file := testproc.Try(parser.ParseFile(set, filepath.Join(root, name), nil, parser.SkipObjectResolution)).Or(t)
		for _, decl := range file.Decls {
			method, ok := decl.(*ast.FuncDecl)
			if !ok || method.Recv == nil || len(method.Recv.List[0].Names) == 0 {
				continue
			}
			receiver, of := method.Recv.List[0].Names[0].Name, receiverType(method.Recv.List[0].Type)
			if receiver != "_" && !receiverFits(receiver, of) {
				t.Errorf("%s:%d: receiver %s of %s: use letters of the type's name, the first that of a word",
					name, set.Position(method.Pos()).Line, receiver, of)
			}
		}
	}
}

// receiverType is the name of the type in the expression of a receiver, such as *Reloaded[T].
func receiverType(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiverType(e.X)
	case *ast.IndexExpr:
		return receiverType(e.X)
	case *ast.IndexListExpr:
		return receiverType(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func receiverFits(receiver, of string) bool {
	if establishedReceivers[strings.ToLower(of)] == receiver {
		return true
	}
	letters := []rune(of)
	for i, c := range letters {
		begins := i == 0 || unicode.IsUpper(c) &&
			(!unicode.IsUpper(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1]))
		rest := strings.ToLower(string(letters[i:]))
		if begins && rest[:1] == strings.ToLower(receiver[:1]) && inOrder(strings.ToLower(receiver), rest) {
			return true
		}
	}
	return false
}

// inOrder reports whether the letters occur in a text in their order.
func inOrder(letters, text string) bool {
	for _, c := range letters {
		at := strings.IndexRune(text, c)
		if at < 0 {
			return false
		}
		text = text[at+utf8.RuneLen(c):]
	}
	return true
}

// TestReceiverFits: the rule of TestReceivers, by examples.
func TestReceiverFits(t *testing.T) {
	for receiver, want := range map[string]bool{
		"t Tracker": true, "tx sharedTx": true, "c statusCollector": true, "sc statusCollector": true, "db DB": true,
		"s HTTPServer": true, "x Exchange": true, "s DB": false, "w statusCollector": false, "k Tracker": false,
	} {
		name, of, _ := strings.Cut(receiver, " ")
		testproc.Equal(t, receiverFits(name, of), want, "%s: %t", receiver)
	}
}
