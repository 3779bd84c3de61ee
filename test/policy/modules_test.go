// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// mostNeeded is how many modules a driver is built from, its own among them, and mostInGraph how
// many `go list -m all` names: with grpc alone it is 40. terraform-plugin-framework 1.19 has 24 and
// 69, and csi-test 5.6 has 22 and 80.
const (
	mostNeeded  = 24
	mostInGraph = 69
)

// foreign are modules of which none may be in the graph of a driver: the agent's and what only the
// agent and its servers import.
var foreign = []string{
	strings.TrimSuffix(module, "/"), "modernc.org/sqlite", "github.com/jackc/pgx/v5", "github.com/go-sql-driver/mysql",
	"libvirt.org/go/libvirt", "libvirt.org/go/libvirtxml", "github.com/jaypipes/ghw", "github.com/spf13/cobra",
	"github.com/prometheus/client_golang", "github.com/gophercloud/gophercloud/v2", "github.com/coder/websocket",
	"github.com/pelletier/go-toml/v2", "go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp",
}

// modules are the directories of the modules that go.work joins.
func modules(t *testing.T) []string {
	t.Helper()
	var work struct{ Use []struct{ DiskPath string } }
	testproc.Check(t, json.Unmarshal([]byte(run(t, root, nil, "go", "work", "edit", "-json")), &work))
	var out []string
	for _, use := range work.Use {
		out = append(out, use.DiskPath)
	}
	if len(out) < 2 {
		t.Fatalf("go.work joins %v", out)
	}
	return out
}

// goOf runs go in a directory of the repository without the workspace and without a network, and
// returns what it printed.
func goOf(t *testing.T, dir string, args ...string) string {
	t.Helper()
	return run(t, filepath.Join(root, dir),
		[]string{"GOWORK=off", "GOFLAGS=-mod=readonly", "GOPROXY=off"}, "go", args...)
}

// run runs a program with more in its environment, and returns what it printed.
func run(t *testing.T, dir string, env []string, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %s %s: %v\n%s", dir, program, strings.Join(args, " "), err, &stderr)
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
				t.Errorf("%s/go.mod replaces %s with %s: only modules of this repository are replaced",
					dir, r.Old.Path, r.New.Path)
			}
		}
	}
}

// TestDriverOutside: a driver in an empty directory elsewhere, which requires the module plugins
// alone, builds without a network, and neither what it is built from nor its module graph has
// anything of the agent's. It replaces the modules as docs/writing-a-driver.md says.
func TestDriverOutside(t *testing.T) {
	dir := t.TempDir()
	copyTo(t, filepath.Join(dir, "main.go"), "testdata/outside/main.go")
	// a sum that is not there would be asked for
	copyTo(t, filepath.Join(dir, "go.sum"), filepath.Join(root, "plugins/go.sum"))
	checkout := testproc.Try(filepath.Abs(root)).Or(t)
	ours := modules(t)[1:]
	edit := []string{"mod", "edit", "-module", "example.org/outside", "-go", "1.26.0",
		"-require", module + "plugins@v0.0.0"}
	for i, m := range ours {
		ours[i] = strings.TrimPrefix(m, "./")
		edit = append(edit, "-replace", module+ours[i]+"="+filepath.Join(checkout, ours[i]))
	}
	testproc.Check(t, os.WriteFile(filepath.Join(dir, "go.mod"), nil, 0o600))
	outside := func(args ...string) string {
		t.Helper()
		return run(t, dir, []string{"GOWORK=off", "GOFLAGS=-mod=mod -trimpath", "GOPROXY=off", "CGO_ENABLED=0"},
			"go", args...)
	}
	outside(edit...)
	outside("build", "-o", "driver", ".")
	testproc.Contains(t, run(t, dir, nil, "./driver", "--info"), `"name": "outside"`, "%v")

	atMost(t, outside("list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "."),
		mostNeeded, "a driver is built from")
	atMost(t, outside("mod", "graph"), mostInGraph, "the module graph of a driver has")

	page := string(testproc.Try(os.ReadFile(filepath.Join(root, "docs/writing-a-driver.md"))).Or(t))
	testproc.Contains(t, page, "for module in "+strings.Join(ours, " ")+"; do\n", "docs/writing-a-driver.md: %v")
}

// atMost checks how many modules are in a listing, at whatever versions, and that none is
// [foreign].
func atMost(t *testing.T, listing string, most int, what string) {
	t.Helper()
	distinct := map[string]bool{}
	for _, node := range strings.Fields(listing) {
		if path, _, _ := strings.Cut(node, "@"); path != "go" && path != "toolchain" {
			distinct[path] = true
		}
	}
	if n := len(distinct); n < 10 || n > most {
		t.Errorf("%s %d modules, want 10 to %d: %v", what, n, most, slices.Sorted(maps.Keys(distinct)))
	}
	for _, path := range foreign {
		if distinct[path] {
			t.Errorf("%s %s", what, path)
		}
	}
}

// copyTo copies a file.
func copyTo(t *testing.T, to, from string) {
	t.Helper()
	testproc.Check(t, os.WriteFile(to, testproc.Try(os.ReadFile(from)).Or(t), 0o600))
}

// TestModulesAreJoined: go.work joins all modules, but for the tools.
func TestModulesAreJoined(t *testing.T) {
	joined := modules(t)
	for _, file := range strings.Fields(run(t, root, nil, "git", "ls-files", "*go.mod")) {
		dir := "./" + filepath.ToSlash(filepath.Dir(file))
		if dir == "./." {
			dir = "."
		}
		if dir != "./tools" && !slices.Contains(joined, dir) {
			t.Errorf("go.work does not join %s", dir)
		}
	}
}
