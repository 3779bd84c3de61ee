// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

const module = "github.com/compute-agent/compute-agent/"

// root is the top of the repository, from here.
const root = "../.."

// mayImport lists which packages of the module a layer may import (see ARCHITECTURE.md). A layer is
// a package and what is below it. It may always import what is below itself and what commons lists;
// of another layer it may import what is named and nothing below that. A package that is in no
// layer may import everything: it puts things together.
var mayImport = map[string][]string{
	"providertree": {},
	"plugins":      {"providertree"},
	"plugins/drivertest": {"internal/pluginhost/driverclient", "internal/pluginhost/launch",
		"internal/pluginhost/trial", "plugins"},
	"plugins/drivertest/internal/checks": {"internal/pluginhost", "internal/pluginhost/driverclient",
		"internal/pluginhost/launch", "internal/pluginhost/trial", "plugins",
		"plugins/proto/driver/v1", "plugins/proto/protocol", "providertree"},
	"internal/pluginhost": {"plugins", "plugins/proto/protocol",
		"plugins/proto/driver/v1", "providertree"},
	// The parts of the host know neither each other nor their supervisor.
	"internal/pluginhost/launch": {"plugins/proto/protocol"},
	"internal/pluginhost/driverclient": {"plugins", "plugins/proto/protocol",
		"plugins/proto/driver/v1", "providertree"},
	"internal/pluginhost/trial": {"internal/pluginhost", "internal/pluginhost/driverclient",
		"internal/pluginhost/launch", "plugins", "plugins/proto/protocol", "providertree"},
	"resourcetracker/reshape": {"plugins", "providertree", "reportclient", "resourcetracker/journal",
		"resourcetracker/ownership"},
	"drivers":                   {"plugins", "providertree"},
	"drivers/libvirt":           {"plugins", "providertree", "internal/libvirtd"},
	"reportclient":              {"providertree", "placement/placementclient", "placement/wire"},
	"resourcetracker":           {"providertree", "plugins", "reportclient"},
	"placement/placementclient": {"placement/wire"},
	"placement/wire":            {"providertree"},
	"placement/ledger":          {"internal/lib/pmap", "providertree"},
	"placement/transactor":      {"placement/ledger"},
	"placement/candidates":      {"placement/ledger", "placement/wire", "providertree"},
	// Test helpers.
	"test/placementtest": {"placement/candidates", "placement/ledger", "placement/transactor", "providertree"},
	"placement/store":    {"placement/ledger"},
	"placement/api":      {"placement/candidates", "placement/ledger", "placement/wire", "providertree"},
	// It knows the state and the request, and not how calls are answered.
	"placement/api/hostpolicy": {"internal/agentruns", "placement/ledger", "placement/wire", "providertree"},
	"placement":                {"internal/keystone"},
	"systemd":                  {},
	"internal/config":          {"placement/wire", "providertree", "systemd"},
	"internal/agent/commands": {"internal/agent", "internal/agent/access", "internal/agent/control",
		"internal/agent/statedir", "internal/config", "internal/health", "internal/pluginhost",
		"internal/pluginhost/launch", "internal/pluginhost/trial", "placement", "placement/store", "plugins",
		"providertree", "reportclient", "resourcetracker", "resourcetracker/audit", "resourcetracker/identity",
		"resourcetracker/journal", "resourcetracker/ownership", "resourcetracker/providerconfig",
		"resourcetracker/reshape"},
	"internal/agent/access": {"cells/cellclient", "cells/cellwire", "internal/agentruns", "internal/config",
		"internal/keystone",
		"placement/placementclient", "placement/wire", "plugins", "reportclient"},
	"internal/agent/statedir": {"plugins", "providertree", "resourcetracker",
		"resourcetracker/identity", "resourcetracker/journal", "resourcetracker/ownership"},
	"internal/agent/telemetry": {"internal/health", "internal/pluginhost", "plugins", "reportclient",
		"resourcetracker", "resourcetracker/reshape"},
	"internal/agent/control": {"internal/agent/statedir", "internal/config", "internal/health",
		"providertree", "reportclient", "resourcetracker", "resourcetracker/audit", "resourcetracker/reshape"},
	"cmd/compute-agent/internal/render": {"cells/apidb", "cells/enrolment", "cells/operator",
		"cells/scheduler/cloudaudit",
		"internal/agent/commands", "internal/agent/control", "internal/agentruns", "internal/agent/statedir",
		"internal/doctor", "internal/health", "internal/pluginhost", "internal/pluginhost/launch",
		"internal/pluginhost/trial", "placement", "placement/candidates",
		"placement/store", "placement/wire", "providertree", "reportclient", "resourcetracker",
		"resourcetracker/audit", "resourcetracker/journal", "resourcetracker/reshape"},
	"cmd/compute-agent/internal/cli": {"cells", "cells/apidb", "cells/celldb", "cells/enrolment", "cells/operator",
		"cmd/compute-agent/internal/render", "internal/agent/commands", "internal/agent/control", "internal/config",
		"internal/controlplane", "placement", "placement/store", "resourcetracker", "resourcetracker/journal",
		"resourcetracker/providerconfig", "resourcetracker/reshape", "systemd"},
	"internal/health": {"cells/worker", "internal/agent/statedir", "internal/pluginhost", "resourcetracker"},
	// What every layer may use (commons) stands on next to nothing.
	"internal/agentruns":        {},
	"internal/auditlog":         {"systemd"},
	"internal/extraspecs":       {"providertree"},
	"internal/files":            {},
	"internal/jsonkit":          {"providertree"},
	"internal/keystone":         {},
	"internal/osapi":            {},
	"internal/osapi/oslopolicy": {},
	"internal/pki":              {},
	"internal/sqldb":            {},
	"internal/sqldb/backup":     {},
	"internal/sqldb/engine":     {},
	"internal/tracing":          {},
	"internal/lib":              {},
	// What puts the services of the control plane together. Tracing is started as the agent starts
	// its own.
	"internal/controlplane": {"cells", "cells/apidb", "cells/cell", "cells/cellclient", "cells/cellwire",
		"cells/compute", "cells/enrolment", "cells/gather", "cells/operator", "cells/scheduler/placementcalls",
		"internal/agent",
		"internal/agent/access", "internal/config", "internal/keystone", "internal/libvirtd", "placement",
		"placement/api", "plugins", "systemd"},
	"internal/libvirtd":                   {},
	"test/oracle":                         {"test/testproc", "placement", "placement/api", "placement/wire"},
	"cmd/compute-agent/internal/scaffold": {},
	"internal/version":                    {},
	// The tree follows from the selection, and from nothing that does I/O.
	"drivers/libvirt/internal/machine":      {},
	"drivers/libvirt/internal/qcow2":        {},
	"drivers/libvirt/internal/capabilities": {"drivers/libvirt/internal/machine"},
	"drivers/libvirt/internal/domain": {"plugins", "providertree", "drivers/libvirt/internal/capabilities",
		"drivers/libvirt/internal/machine"},
	"drivers/libvirt/internal/selection": {"plugins", "providertree", "drivers/libvirt/internal/domain",
		"drivers/libvirt/internal/machine"},
	"drivers/libvirt/internal/assignment": {"plugins", "providertree", "drivers/libvirt/internal/domain",
		"drivers/libvirt/internal/machine",
		"drivers/libvirt/internal/selection"},
	"drivers/libvirt/internal/inventory": {"plugins", "providertree", "drivers/libvirt/internal/assignment",
		"drivers/libvirt/internal/capabilities",
		"drivers/libvirt/internal/machine", "drivers/libvirt/internal/selection"},
	"drivers/libvirt/internal/discovery": {"drivers/libvirt/internal/machine"},
	// The fake driver has faults; they know nothing of it.
	"drivers/fake/internal/faults": {"plugins", "providertree"},
	// Cells: the cell and its database, its client and the fan-out to many cells, the scheduler,
	// the compute API, and the agent's worker. Only package cells chooses databases.
	"cells":             {"placement/placementclient"},
	"cells/cellwire":    {"internal/agentruns", "plugins"},
	"cells/apidb":       {"cells/cellwire", "internal/agentruns"},
	"cells/serverstate": {"cells/cellwire", "plugins"},
	"cells/celldb":      {"cells/cellwire", "cells/serverstate", "internal/agentruns", "plugins"},
	// It makes statements, and neither runs them nor reads rows.
	"cells/celldb/serverquery": {"cells/cellwire", "cells/serverstate"},
	"cells/cell":               {"cells/celldb", "cells/cellwire", "cells/serverstate"},
	"cells/cellclient":         {"cells/cellwire"},
	"cells/gather":             {"cells/apidb", "cells/cellclient", "cells/cellwire"},
	"cells/scheduler": {"cells/apidb", "cells/cellclient",
		"cells/cellwire", "cells/gather", "placement/placementclient", "placement/wire",
		"plugins", "providertree"},
	"cells/scheduler/cellmappings": {"cells/apidb", "cells/cellclient",
		"cells/cellwire", "cells/gather"},
	"cells/scheduler/cloudaudit": {"cells/apidb", "cells/cellclient", "cells/cellwire", "cells/gather",
		"cells/scheduler/cellmappings", "placement/placementclient", "placement/wire",
		"plugins", "providertree"},
	"cells/scheduler/placementcalls": {"cells/apidb", "cells/cellwire", "cells/scheduler/resourcerequest",
		"placement/placementclient", "placement/wire", "providertree"},
	"cells/scheduler/quota": {"cells/apidb", "cells/cellclient", "cells/cellwire", "cells/gather",
		"placement/placementclient", "placement/wire"},
	"cells/scheduler/resourcerequest": {"cells/cellwire", "placement/wire", "providertree"},
	// The calls of the compute API stand on what all of them have in common, and not on each other.
	"cells/compute/api": {},
	"cells/compute/admin": {"cells/apidb", "cells/cellclient", "cells/cellwire", "cells/compute/api", "cells/gather",
		"cells/scheduler/placementcalls", "providertree"},
	"cells/compute/tenant": {"cells/apidb", "cells/cellwire", "cells/compute/api", "plugins"},
	"cells/compute/serverview": {"cells/apidb", "cells/cellclient", "cells/cellwire", "cells/compute/api",
		"cells/gather", "plugins", "providertree"},
	"cells/compute/servers": {"cells/apidb", "cells/cellclient", "cells/cellwire", "cells/compute/api",
		"cells/compute/serverview", "cells/gather", "cells/scheduler",
		"cells/scheduler/cellmappings", "cells/scheduler/quota", "cells/scheduler/resourcerequest"},
	"cells/compute": {"cells/apidb", "cells/cellwire", "cells/gather", "cells/scheduler/quota"},
	// The enrolment of hosts: the service, and what an operator, a host and its agent do.
	"cells/enrolment": {"cells/apidb", "internal/agentruns"},
	// The commands of an operator, which are no part of the compute API.
	"cells/operator": {"cells/apidb", "cells/cellclient",
		"cells/cellwire", "cells/enrolment", "cells/gather",
		"cells/scheduler/cellmappings", "cells/scheduler/cloudaudit",
		"cells/scheduler/placementcalls",
		"internal/agent/access", "internal/agentruns", "internal/config", "placement/placementclient",
		"placement/wire", "providertree", "reportclient",
		"resourcetracker/identity"},
	"cells/worker": {"cells/cellclient", "cells/cellwire", "internal/agentruns", "plugins", "providertree"},
}

// commons are small internal packages that every layer may use.
var commons = []string{"internal/auditlog", "internal/extraspecs", "internal/files",
	"internal/jsonkit", "internal/osapi", "internal/osapi/oslopolicy", "internal/pki",
	"internal/lib/processes", "internal/sqldb", "internal/sqldb/backup", "internal/sqldb/engine",
	"internal/lib/textutil", "internal/lib/wait", "internal/tracing", "internal/version"}

// mustNotDepend lists what must not be linked into a package's binary or library, even indirectly,
// and why.
var mustNotDepend = map[string]map[string]string{
	"cmd/compute-agent": {
		"libvirt.org/go/libvirt":       "the agent is static and pure Go; libvirt is the driver's",
		"github.com/jaypipes/ghw":      "hardware is the driver's",
		module + "drivers":             "drivers are processes of their own",
		module + "plugins/drivertest":  "the conformance suite is a program of its own",
		"testing":                      "nothing of a test",
		"github.com/stretchr/testify":  "for tests at most",
		"gopkg.in/yaml.v2":             "unmaintained",
		"github.com/golang/glog":       "logging is zerolog",
		"github.com/sirupsen/logrus":   "logging is zerolog",
		"encoding/gob":                 "nothing is stored in a format that only Go reads",
		"github.com/mattn/go-sqlite3":  "needs cgo",
		"github.com/pkg/errors":        "the standard library wraps errors",
		"math/rand":                    "math/rand/v2",
		"github.com/hashicorp/go-uuid": "google/uuid is ours",
	},
	"plugins": {
		"modernc.org/sqlite":           "a driver author's import graph holds no database",
		module + "placement":           "a driver author's import graph holds no Placement server",
		module + "reportclient":        "a driver author's import graph holds no agent",
		module + "resourcetracker":     "a driver author's import graph holds no agent",
		module + "internal/pluginhost": "the supervisor is the agent's",
		"github.com/spf13/cobra":       "a driver has no command line",
		"github.com/prometheus":        "a driver's metrics are the agent's",
		"github.com/jaypipes/ghw":      "not every driver looks at hardware",
		"github.com/pelletier/":        "a driver's configuration arrives as JSON",
		"libvirt.org/go/libvirt":       "not every driver is libvirt's",
		"libvirt.org/go/libvirtxml":    "not every driver is libvirt's",
	},
	"cells": {
		module + "placement/api":    "the compute API is a client of Placement, over HTTP",
		module + "placement/ledger": "the compute API is a client of Placement, over HTTP",
		module + "internal/agent":   "cells know agents only by their requests",
		module + "resourcetracker":  "cells know agents only by their requests",
	},
	"cells/compute/api": {
		module + "cells/gather": "what calls have in common knows no cell",
		module + "cells/apidb":  "what calls have in common knows no database",
	},
	"cells/serverstate": {
		"database/sql": "cells/celldb does the storing",
	},
	"cells/worker": {
		"database/sql":           "a host holds no database",
		module + "placement/api": "the agent is a client of Placement",
		module + "cells/apidb":   "a host knows only its own cell",
		module + "cells/celldb":  "a host asks its cell, not the cell's database",
		"github.com/prometheus":  "the agent reports the metrics",
	},
	"providertree": {
		"net/http": "no I/O", "os/exec": "no I/O", "github.com/rs/zerolog": "no logger",
	},
	"placement/ledger": {
		"net/http": "no I/O", "database/sql": "placement/store does the storing", "os/exec": "no I/O",
	},
	"placement/transactor": {
		"net/http": "no I/O", "database/sql": "placement/store does the storing", "os/exec": "no I/O",
	},
}

// allowedAnyway are exceptions to mustNotDepend that come with a chosen library.
var allowedAnyway = map[string]string{
	"cmd/compute-agent math/rand":    "grpc and prometheus use it",
	"cmd/compute-agent testing":      "hashicorp/go-plugin imports it",
	"cmd/compute-agent encoding/gob": "hashicorp/go-plugin's net/rpc mode, which is not used",
}

func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && p != root &&
			(strings.HasPrefix(name, ".") || name == "testdata" || name == "bin" || name == "tools") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(p, ".go") {
			rel, err := filepath.Rel(root, p)
			if err != nil {
				return err
			}
			files = append(files, filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil || len(files) == 0 {
		t.Fatal(err, len(files))
	}
	return files
}

func generated(name string) bool { return strings.HasSuffix(name, ".pb.go") }

// TestImports: each layer imports only what mayImport allows, and mayImport allows what it imports
// and no more: a wall is as low as the code needs it.
func TestImports(t *testing.T) {
	used := map[string]map[string]bool{}
	for layer := range mayImport {
		used[layer] = map[string]bool{}
	}
	for _, name := range goFiles(t) {
		if strings.HasSuffix(name, "_test.go") {
			continue // tests may put things together
		}
		layer, rule := layerOf(path.Dir(name))
		if layer == "" {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, parser.ImportsOnly)
		testproc.Check(t, err)
		for _, spec := range f.Imports {
			imported := testproc.Try(strconv.Unquote(spec.Path.Value)).Or(t)
			other, ours := strings.CutPrefix(imported, module)
			if !ours || within(other, layer) || slices.Contains(commons, other) {
				continue
			}
			used[layer][other] = true
			if !slices.Contains(rule, other) {
				t.Errorf("%s: %s must not import %s (allowed: %v)", name, layer, other, rule)
			}
		}
	}
	for layer, rule := range mayImport {
		for _, other := range rule {
			if !used[layer][other] {
				t.Errorf("%s does not import %s: take it out of mayImport", layer, other)
			}
		}
	}
}

// layerOf returns the innermost layer that a package is in, and what it may import.
func layerOf(pkg string) (string, []string) {
	best := ""
	for layer := range mayImport {
		if within(pkg, layer) && len(layer) > len(best) {
			best = layer
		}
	}
	return best, mayImport[best]
}

func within(pkg, layer string) bool { return pkg == layer || strings.HasPrefix(pkg, layer+"/") }

// TestDependencies: no package links what mustNotDepend denies it.
func TestDependencies(t *testing.T) {
	for pkg, banned := range mustNotDepend {
		cmd := exec.Command("go", "list", "-deps", "-tags", "libvirt_dlopen", "./"+pkg)
		cmd.Dir = root
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		testproc.Checkf(t, err, "go list -deps ./%s", pkg)
		for dep := range strings.Lines(string(out)) {
			dep = strings.TrimSpace(dep)
			for bad, why := range banned {
				hit := dep == bad ||
					(strings.Contains(bad, ".") && strings.HasPrefix(dep, strings.TrimSuffix(bad, "/")+"/"))
				if hit && allowedAnyway[pkg+" "+bad] == "" {
					t.Errorf("%s depends on %s: %s", pkg, dep, why)
				}
			}
		}
	}
}

// TestFiles: every file names its licence, and is short enough to be read in one go.
func TestFiles(t *testing.T) {
	const most = 600
	for _, name := range goFiles(t) {
		content := testproc.Try(os.ReadFile(filepath.Join(root, name))).Or(t)
		if generated(name) {
			continue
		}
		if !strings.HasPrefix(string(content), "// SPDX-License-Identifier: Apache-2.0\n\n") {
			t.Errorf("%s: the first line must be // SPDX-License-Identifier: Apache-2.0, and the second empty", name)
		}
		if lines := strings.Count(string(content), "\n"); lines > most {
			t.Errorf("%s has %d lines, more than %d: split it by topic", name, lines, most)
		}
	}
}

// TestTestsWriteExecutables: a program that is written while another test starts a process cannot
// be executed until that process has executed its own (ETXTBSY).
func TestTestsWriteExecutables(t *testing.T) {
	written := regexp.MustCompile(`os\.WriteFile\(.*?, (0o[0-7]*)\)`)
	for _, name := range goFiles(t) {
		if !strings.HasSuffix(name, "_test.go") {
			continue
		}
		content := testproc.Try(os.ReadFile(filepath.Join(root, name))).Or(t)
		for _, found := range written.FindAllStringSubmatch(string(content), -1) {
			if strings.HasSuffix(found[1], "5") || strings.HasSuffix(found[1], "1") {
				t.Errorf("%s: %s: use testproc.WriteExecutable", name, found[0])
			}
		}
	}
}

// TestPackageDocs: every package has a doc comment.
func TestPackageDocs(t *testing.T) {
	docs := map[string]int{}
	for _, name := range goFiles(t) {
		if strings.HasSuffix(name, "_test.go") || generated(name) {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(),
			filepath.Join(root, name), nil, parser.PackageClauseOnly|parser.ParseComments)
		testproc.Check(t, err)
		docs[path.Dir(name)] += isDoc(f)
	}
	for pkg, n := range docs {
		if n == 0 && !strings.HasPrefix(pkg, "plugins/proto/") {
			t.Errorf("package %s has no doc comment", pkg)
		}
	}
}

func isDoc(f *ast.File) int {
	if f.Doc != nil && (strings.HasPrefix(f.Doc.Text(), "Package ") || strings.HasPrefix(f.Doc.Text(), "Command ")) {
		return 1
	}
	return 0
}

// TestDependenciesAreExplained: docs/dependencies.md gives the reason of each direct dependency.
func TestDependenciesAreExplained(t *testing.T) {
	explained := testproc.Try(os.ReadFile(filepath.Join(root, "docs/dependencies.md"))).Or(t)
	var mods []byte
	for _, dir := range modules(t) {
		mods = append(mods, testproc.Try(os.ReadFile(filepath.Join(root, dir, "go.mod"))).Or(t)...)
	}
	for line := range strings.Lines(string(mods)) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) == 2 && strings.Contains(fields[0], ".") && strings.HasPrefix(fields[1], "v") &&
			!strings.HasPrefix(fields[0], module) && !strings.Contains(string(explained), "`"+fields[0]+"`") {
			t.Errorf("docs/dependencies.md does not say why %s is there", fields[0])
		}
	}
}

// TestShippedBinariesAreFreeOfTestCode: none of our packages in a binary that ships imports a
// testing package. Package testing alone is linked all the same: hashicorp/go-plugin imports it.
func TestShippedBinariesAreFreeOfTestCode(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "-tags", "libvirt_dlopen", "-f", `{{.ImportPath}} {{join .Imports " "}}`,
		"./cmd/compute-agent", "./cmd/compute-driver-fake", "./cmd/compute-driver-test", "./cmd/compute-driver-libvirt")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	testproc.Checkf(t, err, "go list -deps")
	ours := 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if !strings.HasPrefix(fields[0], module) {
			continue
		}
		ours++
		for _, imported := range fields[1:] {
			if within(imported, "testing") || imported == "net/http/httptest" || within(imported, module+"test") {
				t.Errorf("%s imports %s", fields[0], imported)
			}
		}
	}
	if ours == 0 {
		t.Error("no package of ours is listed")
	}
}
