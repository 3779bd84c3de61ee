// SPDX-License-Identifier: Apache-2.0

package apidb_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// childEnv makes the test binary another process: "open|PATH" opens the database, "storm|PATH|NAME"
// writes until it is killed.
const childEnv = "APIDB_TEST_CHILD"

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		do, rest, _ := strings.Cut(spec, "|")
		err := errors.New("no such child")
		switch do {
		case "open":
			err = closed(apidb.Open(ctx, rest, apidb.Options{}))
		case "storm":
			path, name, _ := strings.Cut(rest, "|")
			err = storm(path, name)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// unprivileged runs a process as a user without rights.
func unprivileged() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}

// storm boots servers as fast as it can, and says after each step what was acknowledged.
func storm(path, name string) error {
	s, err := apidb.Open(ctx, path, apidb.Options{})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(what, uuid string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(what, uuid)
	}
	errs := make(chan error)
	for client := range 4 {
		go func() {
			for i := 0; ; i++ {
				uuid := fmt.Sprintf("%s-%d-%d", name, client, i)
				if err := boot(s, uuid, i, say); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	return <-errs
}

func boot(s apidb.Store, uuid string, i int, say func(what, uuid string)) error {
	if err := s.CreateServers(ctx, []apidb.RequestSpec{server(uuid, "p")}, nil); err != nil {
		return err
	}
	say("created", uuid)
	if err := s.Claim(ctx, apidb.Claim{InstanceUUID: uuid, NodeUUID: "n", CellUUID: cellUUID(1)}); err != nil {
		return err
	}
	say("claimed", uuid)
	if i%5 == 0 {
		if err := s.AbandonBuild(ctx, uuid); err != nil {
			return err
		}
		say("abandoned", uuid)
		return nil
	}
	if err := s.Place(ctx, uuid, cellUUID(1)); err != nil {
		return err
	}
	say("placed", uuid)
	if err := s.FinishBuild(ctx, uuid); err != nil {
		return err
	}
	say("built", uuid)
	return nil
}

// TestKill: a process is killed in the middle of its writes, again and again, and others go on.
// What was acknowledged is there, and no server is in a state that no step leaves.
func TestKill(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "api.db")
	s := open(t, path, apidb.Options{})
	withCells(t, s, 1)
	shut(t, s)
	last := map[string]string{}
	for round := range 4 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=storm|%s|r%d", childEnv, path, round))
		cmd.Stderr = os.Stderr
		out := testproc.Try(cmd.StdoutPipe()).Or(t)
		must(t, cmd.Start())
		lines := bufio.NewReader(out)
		for n := 0; ; n++ {
			line, err := lines.ReadString('\n')
			if err != nil {
				break // a line that is cut short was never said
			}
			what, uuid, _ := strings.Cut(strings.TrimSpace(line), " ")
			last[uuid] = what
			if n == 40+25*round {
				must(t, cmd.Process.Kill())
			}
		}
		_ = cmd.Wait() // it was killed
		s := open(t, path, apidb.Options{})
		must(t, s.SetQuotas(ctx, fmt.Sprint("p", round), apidb.QuotaSet{"cores": 1}))
		shut(t, s)
	}
	if len(last) < 40 {
		t.Fatalf("only %d servers were made", len(last))
	}
	if got := ask(t, path, "PRAGMA integrity_check"); got[0] != "ok" {
		t.Fatal(got)
	}
	if got := ask(t, path, "PRAGMA foreign_key_check"); len(got) > 0 {
		t.Fatal(got)
	}
	// As the file has it: cell, queued for delete, specification, build request, claim.
	shapes := map[string]string{}
	for _, row := range ask(t, path, `SELECT m.instance_uuid, m.cell_id IS NOT NULL, m.queued_for_delete, s.id IS NOT NULL, b.id IS NOT NULL, c.node_uuid IS NOT NULL FROM instance_mappings m
		LEFT JOIN request_specs s USING (instance_uuid) LEFT JOIN build_requests b USING (instance_uuid) LEFT JOIN claims c USING (instance_uuid)`) {
		uuid, shape, _ := strings.Cut(row, "|")
		shapes[uuid] = shape
	}
	step := map[string]int{"0|0|1|1|0": 1, "0|0|1|1|1": 2, "1|0|1|1|1": 3, "1|0|1|0|0": 4, "0|1|1|0|1": 3}
	said := map[string]int{"created": 1, "claimed": 2, "placed": 3, "built": 4, "abandoned": 3}
	for uuid, shape := range shapes {
		if step[shape] == 0 {
			t.Errorf("server %s is in a state that no step leaves: %s", uuid, shape)
		}
		if step[shape] > said[last[uuid]]+1 {
			t.Errorf("server %s is at %s, and %q was the last word", uuid, shape, last[uuid])
		}
	}
	for uuid, what := range last {
		if step[shapes[uuid]] < said[what] {
			t.Errorf("server %s was %s, and is now %q", uuid, what, shapes[uuid])
		}
	}
}
