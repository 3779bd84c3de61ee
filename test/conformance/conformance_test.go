// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var cases = flag.String("conformance", "",
	"the directory with Placement's own API cases and their runner: run_gabbits.py, serve_ours.sh, gabbits/")

var binaries = testproc.Of("cmd/compute-agent")

func TestMain(m *testing.M) { os.Exit(binaries.Main(m)) }

var check = testproc.Check

// onNext takes the first DSN that is left in a directory and runs a command on it.
const onNext = `set -eu
for dsn in "$DSNS"/*; do break; done
COMPUTE_AGENT_PLACEMENT_DATABASE=$(cat "$dsn")
export COMPUTE_AGENT_PLACEMENT_DATABASE
rm "$dsn"
exec "$@"
`

// TestCases runs all files of cases, each against a server of its own, one at a time: with several,
// the runner's pool of processes can wait for itself at the end. Each server has a database of its
// own: there is one for each file, and the servers take them one after the other.
func TestCases(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if *cases == "" {
		t.Skip("It is run by make conformance CONFORMANCE=DIR.")
	}
	dir := testproc.Try(filepath.Abs(*cases)).Or(t)
	files := testproc.Try(filepath.Glob(filepath.Join(dir, "gabbits", "*.yaml"))).Or(t)
	check(t, binaries.Build())
	work := t.TempDir()
	dsns, script := filepath.Join(work, "dsns"), filepath.Join(work, "serve.sh")
	check(t, os.Mkdir(dsns, 0o700))
	all := make([]string, len(files))
	for i := range files {
		all[i] = dbservers.Fresh(t)
		check(t, os.WriteFile(filepath.Join(dsns, fmt.Sprintf("%04d", i)),
			[]byte(dbservers.WithPasswordFile(t, all[i])), 0o600))
	}
	check(t, os.WriteFile(script, []byte(onNext), 0o600))
	cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", filepath.Join(dir, "run_gabbits.py"),
		"--gabbits", filepath.Join(dir, "gabbits"),
		"--prose", "relaxed", "-j", "1", "--server-cmd", strings.Join([]string{
			"/bin/sh", script, filepath.Join(dir, "serve_ours.sh"),
			filepath.Join(binaries.Dir(), "compute-agent"), "{port}", "{state}",
		}, " "))
	cmd.Env = append(os.Environ(), "DSNS="+dsns)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	check(t, err)
	for _, dsn := range all { // no server had another one
		dbservers.Execute(t, dsn, "SELECT uuid FROM resource_providers")
	}
}
