// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// realTime lists the functions of tests that wait by the clock of the machine, and why that is
// right. All others wait for an event, under testproc.Patience, or in virtual time.
var realTime = map[string]string{}

// shortest is the shortest limit that only ends what hangs. A shorter one can pass because the
// machine is busy.
const shortest = 30 * time.Second

// TestTestsDoNotWaitByTheClock: on a busy machine, a wait of some seconds ends before what it waits
// for. Time is virtual in a bubble of testing/synctest, and in functions that only bubbles call.
func TestTestsDoNotWaitByTheClock(t *testing.T) {
	byPackage := map[string][]string{}
	for _, name := range goFiles(t) {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "test/") {
			byPackage[path.Dir(name)] = append(byPackage[path.Dir(name)], name)
		}
	}
	used := map[string]bool{}
	n := 0
	for _, pkg := range slices.Sorted(maps.Keys(byPackage)) {
		for _, w := range waitsOf(t, byPackage[pkg]) {
			key := w.file + " " + w.function
			if used[key] = true; realTime[key] != "" {
				continue
			}
			n++
			t.Errorf("%s:%d: %s waits by the clock: %s. Wait for an event under testproc.Patience, or in testing/synctest", w.file, w.line, w.function, w.what)
		}
	}
	if n > 0 {
		t.Logf("%d waits by the clock", n)
	}
	for key := range realTime {
		if !used[key] {
			t.Errorf("realTime lists %s, which does not wait", key)
		}
	}
}

// wait is a wait of a function by the clock.
type wait struct {
	file, function, what string
	line                 int
}

// source is what is known of the functions of a package's tests.
type source struct {
	waits []wait
	// callers are, by the name of a function or method, the functions that name it, outside of
	// bubbles.
	callers map[string]map[string]bool
	// named are all functions that something names, in bubbles or outside.
	named map[string]bool
	// bubbles are functions that run an argument in a bubble.
	bubbles map[string]bool
}

// waitsOf returns the waits of the test files of a package that are not in a bubble.
func waitsOf(t *testing.T, names []string) []wait {
	t.Helper()
	s := &source{callers: map[string]map[string]bool{}, named: map[string]bool{}, bubbles: map[string]bool{}}
	set := token.NewFileSet()
	files := map[string]*ast.File{}
	for _, name := range names {
		f, err := parser.ParseFile(set, filepath.Join(root, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = f
	}
	for _, f := range files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil && passesOn(fn) {
				s.bubbles[fn.Name.Name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, d := range files[name].Decls {
			fn, ok := d.(*ast.FuncDecl)
			if ok && fn.Body != nil {
				s.look(set, name, fn)
			}
		}
	}
	return slices.DeleteFunc(s.waits, func(w wait) bool { return s.virtual(w.function, map[string]bool{}) })
}

// passesOn reports whether a function has synctest run one of its parameters.
func passesOn(fn *ast.FuncDecl) bool {
	found := false
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		found = found || ok && isCall(call, "synctest", "Test")
		return true
	})
	if !found || strings.HasPrefix(fn.Name.Name, "Test") {
		return false
	}
	return slices.ContainsFunc(fn.Type.Params.List, func(p *ast.Field) bool {
		_, ok := p.Type.(*ast.FuncType)
		return ok
	})
}

// virtual reports whether a function is called, and only in bubbles.
func (s *source) virtual(function string, seen map[string]bool) bool {
	if seen[function] {
		return true
	}
	seen[function] = true
	if strings.HasPrefix(function, "Test") || !s.named[function] {
		return false
	}
	for caller := range s.callers[function] {
		if !s.virtual(caller, seen) {
			return false
		}
	}
	return true
}

// look records what a function waits for and whom it calls.
func (s *source) look(set *token.FileSet, file string, fn *ast.FuncDecl) {
	var visit func(n ast.Node, bubble bool)
	visit = func(root ast.Node, bubble bool) {
		ast.Inspect(root, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if isCall(n, "synctest", "Test") || s.bubbles[nameOf(n.Fun)] {
					s.name(fn.Name.Name, n.Fun, bubble)
					for _, arg := range n.Args {
						visit(arg, true)
					}
					return false
				}
				if what := waitsBy(n); what != "" && !bubble {
					s.waits = append(s.waits, wait{file, fn.Name.Name, what, set.Position(n.Pos()).Line})
				}
			case *ast.Ident:
				s.name(fn.Name.Name, n, bubble)
			}
			return true
		})
	}
	visit(fn.Body, false)
}

func (s *source) name(caller string, called ast.Node, bubble bool) {
	expr, ok := called.(ast.Expr)
	if !ok {
		return
	}
	name := nameOf(expr)
	if name == "" || name == caller {
		return
	}
	s.named[name] = true
	if !bubble {
		if s.callers[name] == nil {
			s.callers[name] = map[string]bool{}
		}
		s.callers[name][caller] = true
	}
}

// nameOf is the last name of an expression.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	default:
		return ""
	}
}

func isCall(call *ast.CallExpr, pkg, name string) bool {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg
}

// waitsBy says how a call waits by the clock: a sleep or a timer, or a limit that is too short to
// end only what hangs.
func waitsBy(call *ast.CallExpr) string {
	for _, name := range []string{"Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"} {
		if isCall(call, "time", name) && (len(call.Args) == 0 || !isPatience(call.Args[0])) {
			return "time." + name
		}
	}
	limits := map[string]int{"WithTimeout": 1, "Eventually": 1, "SetDeadline": 0, "SetReadDeadline": 0}
	at, limited := limits[nameOf(call.Fun)]
	if !limited || len(call.Args) <= at {
		return ""
	}
	if limit := longestIn(call.Args[at]); limit > 0 && limit < shortest {
		return fmt.Sprintf("%s of %v", nameOf(call.Fun), limit)
	}
	return ""
}

func isPatience(e ast.Expr) bool { return strings.EqualFold(nameOf(e), "patience") }

// longestIn is the longest literal duration in an expression, 0 if there is none.
func longestIn(e ast.Expr) time.Duration {
	units := map[string]time.Duration{"Nanosecond": 1, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}
	var longest time.Duration
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if number, ok := n.X.(*ast.BasicLit); ok && n.Op == token.MUL {
				var count int64
				if _, err := fmt.Sscan(number.Value, &count); err == nil {
					longest = cmp.Or(max(longest, time.Duration(count)*units[nameOf(n.Y)]), longest)
					return false
				}
			}
		case *ast.SelectorExpr:
			longest = max(longest, units[n.Sel.Name])
		}
		return true
	})
	return longest
}
