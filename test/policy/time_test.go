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

	"github.com/compute-agent/compute-agent/test/testproc"
)

// Why a wait by the clock is right, where several are for one reason or the reason is long.
const (
	unanswered  = "never answered: the limit only ends the wait for an answer that does not come"
	defect      = "the wait is the defect of the driver"
	heartbeat   = "the heartbeat of the protocol"
	pause       = "a pause of a client or of chaos, at whatever length"
	measurement = "a measurement, for a time that is asked for"
	blocking    = "shows that go-plugin blocks"
	gaveUp      = "a caller that gives up, at whatever moment"
	ownLimit    = "a client's own limit: the outcome of the request is then unknown"
)

// realTime lists the functions of tests that wait by the clock of the machine, and why that is
// right; "in a bubble" is for those of which the source does not show that. All others wait for an
// event, under testproc.Patience, or in virtual time.
var realTime = map[string]string{
	"cells/compute/serverview/merge_cells_test.go RoundTrip":                                    "in a bubble",
	"cells/gather/gather_test.go slow":                                                          "in a bubble",
	"cells/load_test.go idle":                                                                   measurement,
	"cells/worker/fakes_test.go Spawn":                                                          "in a bubble",
	"cells/worker/fakes_test.go Work":                                                           "in a bubble",
	"cells/worker/move_fakes_test.go Arrive":                                                    "in a bubble",
	"cells/worker/move_fakes_test.go Work":                                                      "in a bubble",
	"cells/worker/move_test.go pass":                                                            "in a bubble",
	"cells/worker/process_test.go Report":                                                       "in a bubble",
	"cells/worker/power_test.go TestPowerActions":                                               "in a bubble",
	"cells/worker/rebuild_test.go TestRebuild":                                                  "in a bubble",
	"cells/worker/worker_test.go pass":                                                          "in a bubble",
	"cmd/compute-agent/script_test.go await":                                                    "polls",
	"cmd/compute-agent/starting_test.go TestRealStartsThatTakeLong":                             unanswered,
	"internal/libvirtd/private_test.go TestRealPrivateDaemonThatHangsIsNotReadyAndCanBeStopped": unanswered,
	"internal/libvirtd/probe_test.go TestProbeReportsWhatIsWrong":                               unanswered,
	"placement/api/limits_test.go Update":                                                       "in a bubble",
	"cmd/compute-driver-test/broken_instances_test.go busyWithPasses":                           defect,
	"cmd/compute-driver-test/broken_instances_test.go locksInstances":                           defect,
	"cmd/compute-driver-test/broken_instances_test.go oneAtATime":                               defect,
	"cmd/compute-driver-test/broken_start_test.go healthWaits":                                  defect,
	"cmd/compute-driver-test/raw_instances_test.go Watch":                                       heartbeat,
	"cmd/compute-driver-test/raw_test.go Watch":                                                 heartbeat,
	"internal/pluginhost/instances_test.go Instances":                                           "in a bubble",
	"internal/pluginhost/instances_test.go Spawn":                                               "in a bubble",
	"internal/pluginhost/support_test.go impatient":                                             gaveUp,
	"internal/pluginhost/support_test.go poll":                                                  "polls",
	"internal/pluginhost/upstream_calls_test.go killDuringCall":                                 blocking,
	"internal/pluginhost/upstream_run_test.go do":                                               blocking,
	"plugins/server_instances_test.go TestCallsAboutInstancesWaitForTheirOwnOnly":               unanswered,
	"plugins/server_node_info_test.go TestAbilitiesTakeTurns":                                   unanswered,
	"plugins/server_test.go TestCallsTakeTurns":                                                 unanswered,
	"test/cellstorm/chaos_test.go await":                                                        "polls",
	"test/cellstorm/chaos_test.go chaos":                                                        pause,
	"test/cellstorm/picture_test.go settled":                                                    "polls",
	"test/cellstorm/process_test.go watch":                                                      "polls",
	"test/cellstorm/storm_test.go ask":                                                          ownLimit,
	"test/cellstorm/storm_test.go lasts":                                                        "polls",
	"test/cellstorm/storm_test.go own":                                                          pause,
	"test/cellstorm/watch_test.go watching":                                                     "polls",
	"test/dbservers/server_test.go TestAPairLosesNothingWithItsPrimary":                         unanswered,
	"test/dbservers/server_test.go TestServersAreKilledStoppedAndStartedAgain":                  unanswered,
	"test/e2e/budget_test.go life":                                                              "in a bubble",
	"test/e2e/rolling_test.go ask":                                                              pause,
	"test/e2e/rolling_test.go probe":                                                            pause,
	"test/fleet/cell_test.go TestCell":                                                          measurement,
	"test/fleet/schedule_test.go run":                                                           measurement,
	"test/soak/crash_test.go TestKillDuringStart":                                               pause,
	"test/soak/crash_test.go TestKillDuringStorm":                                               pause,
	"test/soak/replicas_test.go roam":                                                           pause,
	"test/soak/replicas_test.go wait":                                                           pause,
}

// shortest is the shortest limit that only ends what hangs. A shorter one can pass because the
// machine is busy.
const shortest = 30 * time.Second

// TestTestsDoNotWaitByTheClock: on a busy machine, a wait of some seconds ends before what it waits
// for. Time is virtual in a bubble of testing/synctest, and in functions that only bubbles call.
func TestTestsDoNotWaitByTheClock(t *testing.T) {
	byPackage := map[string][]string{}
	for _, name := range goFiles(t) {
		if strings.HasSuffix(name, "_test.go") {
			byPackage[path.Dir(name)] = append(byPackage[path.Dir(name)], name)
		}
	}
	used := map[string]bool{}
	for _, pkg := range slices.Sorted(maps.Keys(byPackage)) {
		for _, w := range waitsOf(t, byPackage[pkg]) {
			key := w.file + " " + w.function
			if used[key] = true; realTime[key] != "" {
				continue
			}
			t.Errorf("%s:%d: %s waits by the clock: %s. Wait for an event under testproc.Patience, or in "+
				"testing/synctest", w.file, w.line, w.function, w.what)
		}
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
		f := testproc.Try(parser.ParseFile(set, filepath.Join(root, name), nil, parser.SkipObjectResolution)).Or(t)
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
	units := map[string]time.Duration{"Nanosecond": 1, "Microsecond": time.Microsecond, "Millisecond": time.Millisecond,
		"Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}
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
