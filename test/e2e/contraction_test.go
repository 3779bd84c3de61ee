// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestDatabasesContractionOfCells: the command that upgrades the database of compute APIs or of a
// cell takes away what older processes use when none of them lives; until then it is refused with
// their names, and newer ones serve beside them. Afterwards no older one starts.
func TestDatabasesContractionOfCells(t *testing.T) {
	testproc.Drawn(t, 2)
	testproc.Parallel(t, testproc.Heavy)
	engines := serverEngines(t, dbservers.Long(t))
	newer := newerProgram(t)
	check(t, binaries.Build())
	older := filepath.Join(binaries.Dir(), "compute-agent")
	for engine, fresh := range engines {
		for name, c := range map[string]contraction{
			"api": {serve: []string{"cells", "api"}, serving: "The compute API is serving.",
				manage: []string{"cells", "manage", "db"}, from: apidb.DatabaseOptions().Schema.Newest() + 1},
			"cell": {serve: []string{"cells", "serve", "--name", "cell1"}, serving: "The cell is serving.",
				manage: []string{"cells", "db"}, from: celldb.DatabaseOptions().Schema.Newest() + 1},
		} {
			t.Run(engine+"/"+name,
				func(t *testing.T) { c.run(t, older, newer, dbservers.WithPasswordFile(t, fresh(t))) })
		}
	}
}

// contraction is a kind of process on a database that several processes share.
type contraction struct {
	serve   []string
	serving string   // what the log has when it serves
	manage  []string // the commands about the schema of its database
	from    int      // the step before that which older processes cannot live with
}

func (c contraction) run(t *testing.T, older, newer, database string) {
	config := filepath.Join(t.TempDir(), "empty.toml")
	check(t, os.WriteFile(config, nil, 0o600))
	on := []string{"--config", config, "--database", database}
	start := func(program string) *process {
		t.Helper()
		dir := testproc.SocketDir(t)
		at := []string{"--listen", testproc.FreeAddress(t),
			"--state-dir", filepath.Join(dir, "state"), "--runtime-dir", filepath.Join(dir, "run")}
		cmd := binaries.Command("compute-agent", slices.Concat(c.serve, at, on)...)
		cmd.Path = program
		return launch(t, c.serve[1], cmd)
	}
	serves := func(program string) *process {
		t.Helper()
		p := start(program)
		p.await(0, c.serving)
		return p
	}
	// command runs a command about the schema, and checks its exit code and what it says.
	command := func(word string, code int, says ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), newer,
			slices.Concat(c.manage, []string{word}, on)...).CombinedOutput()
		got := 0
		if exit := new(exec.ExitError); errors.As(err, &exit) {
			got = exit.ExitCode()
		} else {
			check(t, err)
		}
		t.Logf("%s, %d: %s", word, got, out)
		if got != code || !testproc.ContainsAll(string(out), says) {
			t.Errorf("%s ends with %d, want %d and %q: %s", word, got, code, says, out)
		}
	}
	named := func(p *process) string { return fmt.Sprintf("process %d", p.Pid()) }
	before, after := fmt.Sprint("step ", c.from), fmt.Sprint("step ", c.from+1)

	first, second := serves(older), serves(older)
	command("upgrade", 3, named(first), named(second), after+" of its schema", "stop or upgrade that first")
	command("version", 0, "schema        "+before+"\n", "this program  "+after+"\n",
		"upgrade       needed: compute-agent "+strings.Join(c.manage, " ")+" upgrade\n")
	third := serves(newer)
	first.stop()
	command("upgrade", 3, named(second)+" has it open")
	second.stop()
	command("upgrade", 0, fmt.Sprintf("upgraded from %s to %d", before, c.from+1))
	command("upgrade", 0, "up to date at "+after)
	late := start(older)
	late.await(0, "a newer program was here")
	testproc.Equal(t, late.exit(), 3, "an older one ends with %d")
	third.stop()
}
