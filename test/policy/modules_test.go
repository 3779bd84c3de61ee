// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// mostModules is how many modules a driver's author needs, the driver's own among them.
// terraform-plugin-framework and csi-test need 24.
const mostModules = 25

// modules are the directories of the modules that go.work joins.
func modules(t *testing.T) []string {
	t.Helper()
	var work struct{ Use []struct{ DiskPath string } }
	testproc.Check(t, json.Unmarshal([]byte(goOf(t, ".", "work", "edit", "-json")), &work))
	var out []string
	for _, use := range work.Use {
		out = append(out, use.DiskPath)
	}
	if len(out) < 2 {
		t.Fatalf("go.work joins %v", out)
	}
	return out
}

// goOf runs go in a directory of the repository, and returns what it printed.
func goOf(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = filepath.Join(root, dir)
	if args[0] != "work" {
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly", "GOPROXY=off")
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: go %s: %v\n%s", dir, strings.Join(args, " "), err, &stderr)
	}
	return string(out)
}

// TestModulesStandAlone: each module has what it imports, its tests too, without the workspace, as
// those have it who build from an archive or import it; and none requires the agent.
func TestModulesStandAlone(t *testing.T) {
	ours := strings.TrimSuffix(module, "/")
	for _, dir := range modules(t) {
		goOf(t, dir, "list", "-deps", "-test", "-tags", "libvirt_dlopen", "./...")
		var mod struct {
			Require []struct{ Path string }
			Replace []struct{ Old, New struct{ Path string } }
		}
		testproc.Check(t, json.Unmarshal([]byte(goOf(t, dir, "mod", "edit", "-json")), &mod))
		for _, r := range mod.Require {
			if r.Path == ours {
				t.Errorf("%s/go.mod requires the agent", dir)
			}
		}
		for _, r := range mod.Replace {
			if target := filepath.Join(dir, r.New.Path); module+filepath.ToSlash(target) != r.Old.Path {
				t.Errorf("%s/go.mod replaces %s with %s: only modules of this repository are replaced", dir, r.Old.Path, r.New.Path)
			}
		}
	}
}

// TestDriversNeedFewModules: what a driver and its conformance test link comes from few modules, of
// which none is the agent's or a database's.
func TestDriversNeedFewModules(t *testing.T) {
	needed := map[string]bool{}
	for _, dir := range []string{"plugins", "plugins/drivertest"} {
		for path := range strings.FieldsSeq(goOf(t, dir, "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./...")) {
			needed[path] = true
		}
	}
	if n := 1 + len(needed); n > mostModules || n < 10 {
		t.Errorf("a driver needs %d modules, want at most %d: %v", n, mostModules, needed)
	}
	for _, bad := range []string{strings.TrimSuffix(module, "/"), "modernc.org/sqlite", "github.com/jackc/pgx/v5", "github.com/go-sql-driver/mysql"} {
		if needed[bad] {
			t.Errorf("a driver needs the module %s", bad)
		}
	}
}

// TestModulesAreJoined: go.work joins all modules, but for the tools.
func TestModulesAreJoined(t *testing.T) {
	joined := modules(t)
	for _, file := range strings.Fields(listed(t, "*go.mod")) {
		dir := "./" + filepath.ToSlash(filepath.Dir(file))
		if dir == "./." {
			dir = "."
		}
		if dir != "./tools" && !slices.Contains(joined, dir) {
			t.Errorf("go.work does not join %s", dir)
		}
	}
}

// listed are the files that git knows by a pattern.
func listed(t *testing.T, pattern string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", pattern)
	cmd.Dir = root
	return string(testproc.Try(cmd.Output()).Or(t))
}
