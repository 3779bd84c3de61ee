// SPDX-License-Identifier: Apache-2.0

package scaffold

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// repository is the checkout that the tests run in.
const repository = "../../../.."

// TestRequirements: what a new module requires is what the packages for drivers need, at the
// versions of this module, with the sums that this module trusts. `go mod tidy` would say the same,
// but asks the network for the tests of others.
func TestRequirements(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "driver")
	files := testproc.Try(Render(Params{Name: "acme", Replace: repository})).Or(t)
	testproc.Check(t, Write(dir, files))
	all := testproc.Try(os.ReadFile(filepath.Join(repository, "go.sum"))).Or(t)
	testproc.Check(t, os.WriteFile(filepath.Join(dir, "go.sum"), all, 0o644))
	mod := bare(t, dir)
	testproc.Check(t, os.WriteFile(filepath.Join(dir, "go.mod"), mod, 0o644))
	run(t, dir, "go", "list", "-mod=mod", "-deps", "-test", "./...")

	wantRequires, required := requirements(t, dir)
	wantSums := needed(string(all), required, run(t, dir, "go", "mod", "graph"))
	golden.Text(t, "requires.txt", wantRequires)
	golden.Text(t, "sums.txt", wantSums)

	// The module itself is one. Of drivers without the suite, TestDriverOutside in test/policy says
	// more.
	if all := 1 + len(direct) + len(indirect) + len(required); all > 25 {
		t.Errorf("a new driver needs %d modules, more than 25", all)
	}
	for _, node := range strings.Fields(run(t, dir, "go", "mod", "graph")) {
		for _, bad := range []string{agentModule + "@",
			"modernc.org/", "github.com/jackc/pgx/", "github.com/go-sql-driver/"} {
			if strings.HasPrefix(node, bad) {
				t.Errorf("the module graph of a driver has %s", node)
			}
		}
	}
}

// bare is the go.mod of a new module without what requires.txt says.
func bare(t *testing.T, dir string) []byte {
	t.Helper()
	mod := testproc.Try(os.ReadFile(filepath.Join(dir, "go.mod"))).Or(t)
	return []byte(strings.Join(slices.DeleteFunc(strings.SplitAfter(string(mod), "\n"), func(line string) bool {
		return strings.Contains(line, "// indirect")
	}), ""))
}

// requirements are those of a module beside compute-agent itself: as lines, and as a set.
func requirements(t *testing.T, dir string) (string, map[string]bool) {
	t.Helper()
	var mod struct {
		Require []struct{ Path, Version string }
	}
	testproc.Check(t, json.Unmarshal([]byte(run(t, dir, "go", "mod", "edit", "-json")), &mod))
	var lines strings.Builder
	set := map[string]bool{}
	for _, r := range mod.Require {
		if !strings.HasPrefix(r.Path, agentModule+"/") {
			lines.WriteString(r.Path + " " + r.Version + "\n")
			set[r.Path+" "+r.Version] = true
		}
	}
	return lines.String(), set
}

// needed are the lines of a go.sum with the content of the required modules and the go.mod of all
// in the graph.
func needed(all string, required map[string]bool, graph string) string {
	var out strings.Builder
	for line := range strings.Lines(all) {
		module, version, _ := strings.Cut(line[:strings.LastIndex(line, " ")], " ")
		version, isMod := strings.CutSuffix(version, "/go.mod")
		if required[module+" "+version] || (isMod && strings.Contains(graph, " "+module+"@"+version+"\n")) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// run runs a program without a network, and returns what it printed.
func run(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=", "GOWORK=off")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", program, strings.Join(args, " "), err, out, &stderr)
	}
	return string(out)
}
