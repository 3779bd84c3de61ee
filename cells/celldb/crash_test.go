// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// childEnv makes the test binary a cell that writes as fast as it can, and says each write that was
// acknowledged.
const childEnv = "CELLDB_TEST_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		if err := storm(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// storm brings one server after the other to life until it is killed.
func storm(path string) error {
	s, err := celldb.Open(ctx, path, "cell1", celldb.Options{})
	if err != nil {
		return err
	}
	first, err := s.Info(ctx)
	if err != nil {
		return err
	}
	if _, _, err := s.Report(ctx, serverstate.Reporter{Host: "h1"}, cellwire.HostReport{}, moment); err != nil {
		return err
	}
	for n := int(first.Revision) * 1000; ; n++ {
		if _, err := s.Insert(ctx, building(n), moment); err != nil {
			return err
		}
		fmt.Println(n, cellwire.VMBuilding, "hidden")
		if _, err := s.Release(ctx, sid(n), moment); err != nil {
			return err
		}
		fmt.Println(n, cellwire.VMBuilding, "shown")
		if applied, err := s.Apply(ctx,
			"h1", []cellwire.Report{{UUID: sid(n), Kind: cellwire.ReportSpawned, PowerState: 1}},
			moment); err != nil || applied.Refused[0] != "" {
			return fmt.Errorf("spawned: %v %w", applied.Refused, err)
		}
		fmt.Println(n, cellwire.VMActive, "shown")
	}
}

// TestKill: a cell is killed while it writes, again and again. Each acknowledged write is there,
// the next process goes on at once, and the revision never goes back: no two changes ever have the
// same.
func TestKill(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.Each(t, func(t *testing.T, fresh func(testing.TB) string) { kill(t, fresh(t)) })
}

func kill(t *testing.T, path string) {
	t.Helper()
	acked := map[int][2]string{}
	for round := range 4 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+path)
		cmd.Stderr = os.Stderr
		out := testproc.Try(cmd.StdoutPipe()).Or(t)
		testproc.Check(t, cmd.Start())
		in := bufio.NewScanner(out)
		for lines := 0; in.Scan(); lines++ {
			if lines == 20+17*round {
				testproc.Check(t, cmd.Process.Kill())
			}
			var n, vm, shown string
			if _, err := fmt.Sscan(in.Text(), &n, &vm, &shown); err != nil {
				continue // cut short by the kill: never said
			}
			number := testproc.Try(strconv.Atoi(n)).Or(t)
			acked[number] = [2]string{vm, shown}
		}
		_ = cmd.Wait() // it was killed

		s := open(t, path)
		for n, want := range acked {
			got, err := s.Server(ctx, sid(n), moment)
			testproc.Checkf(t, err, "the acknowledged server %d", n)
			// The last one may be further than its last acknowledged change.
			if later := want[1] == "hidden" && !got.Hidden || want[0] == cellwire.VMBuilding &&
				got.VMState == cellwire.VMActive; !later &&
				(got.VMState != want[0] || got.Hidden != (want[1] == "hidden")) {
				t.Errorf("server %d is %s, hidden %v; acknowledged was %v", n, got.VMState, got.Hidden, want)
			}
		}
		info := testproc.Try(s.Info(ctx)).Or(t)
		page := testproc.Try(s.Servers(ctx, cellwire.ServerQuery{Limit: 10000}, moment)).Or(t)
		seen := map[int64]bool{}
		for _, row := range page.Rows {
			if r := row.Server.Revision; seen[r] || r > info.Revision {
				t.Errorf("server %s has the revision %d of another, or of the future of %d",
					row.Server.UUID, r, info.Revision)
			}
			seen[row.Server.Revision] = true
		}
		closeStore(t, s)
	}
	if len(acked) < 20 {
		t.Errorf("only %d servers were made", len(acked))
	}
}
