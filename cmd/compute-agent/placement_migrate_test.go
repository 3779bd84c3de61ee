// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// request is one to Placement: method, path, body.
type request [3]any

// occupied is a node with everything on its root, and three guests.
func occupied() []request {
	type m = map[string]any
	out := []request{
		{"POST", "/resource_providers", m{"uuid": cn1, "name": "cn1"}},
		{"PUT", "/resource_providers/" + cn1 + "/inventories",
			m{"resource_provider_generation": 0, "inventories": m{"VCPU": m{"total": 8}, "VGPU": m{"total": 8}}}},
	}
	for i := range 3 {
		out = append(out, request{"PUT", "/allocations/" +
			consumer(i), m{"consumer_generation": nil, "project_id": "p", "user_id": "u", "consumer_type": "INSTANCE",
			"allocations": m{cn1: m{"resources": m{"VCPU": 1, "VGPU": i + 1}}}}})
	}
	return out
}

func consumer(i int) string { return fmt.Sprintf("99999999-0000-4000-8000-%012d", i+1) }

// debian makes requests to the distribution's OpenStack Placement on a database file, and returns
// the bodies of the answers.
func debian(t *testing.T, file string, requests []request) []json.RawMessage {
	t.Helper()
	needsUpstream(t)
	answers := testproc.Try(testproc.AskPlacement(t.Context(), file, requests)).Or(t)
	return bodies(t, requests, answers)
}

func bodies(t *testing.T, requests []request, answers []testproc.Answer) (out []json.RawMessage) {
	t.Helper()
	for i, a := range answers {
		if a.Status >= 300 {
			t.Fatalf("%v: %d %s", requests[i], a.Status, a.Body)
		}
		out = append(out, a.Body)
	}
	return out
}

// bundled makes requests to our Placement on a database file.
func bundled(t *testing.T, file string, requests []request) []json.RawMessage {
	t.Helper()
	server, err := placement.New(t.Context(),
		placement.Config{Database: "sqlite://" + file,
			Auth: placement.Auth{Strategy: placement.NoAuth}, Logger: zerolog.Nop()})
	check(t, err)
	var answers []testproc.Answer
	for _, r := range requests {
		body := testproc.Try(json.Marshal(r[2])).Or(t)
		req := httptest.NewRequestWithContext(t.Context(), r[0].(string), r[1].(string), bytes.NewReader(body))
		req.Header.Set("X-Auth-Token", "admin")
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("OpenStack-API-Version", "placement 1.39")
		w := httptest.NewRecorder()
		server.Handler().ServeHTTP(w, req)
		answers = append(answers, testproc.Answer{Status: w.Code, Body: w.Body.Bytes()})
	}
	check(t, server.Close())
	return bodies(t, requests, answers)
}

type asking func(*testing.T, string, []request) []json.RawMessage

// onDatabaseOf makes a database and a site that has no Placement that could be reached.
func onDatabaseOf(t *testing.T, ask asking) (s *site, file string) {
	t.Helper()
	s = newSite(t)
	s.url = "http://127.0.0.1:1"
	file = filepath.Join(s.dir, "db", "placement.db")
	check(t, os.MkdirAll(filepath.Dir(file), 0o700))
	ask(t, file, occupied())
	return s, file
}

// placeOf is where the guests' VGPUs are: "old", "new", or what is wrong.
func placeOf(t *testing.T, file string, ask asking) string {
	t.Helper()
	var requests []request
	for i := range 3 {
		requests = append(requests, request{"GET", "/allocations/" + consumer(i), nil})
	}
	places := map[string]bool{}
	for i, body := range ask(t, file, requests) {
		var got struct {
			Allocations map[string]struct{ Resources map[string]int }
			Project     string `json:"project_id"`
			Type        string `json:"consumer_type"`
		}
		check(t, json.Unmarshal(body, &got))
		vcpu, vgpu, where := 0, 0, "new"
		for provider, a := range got.Allocations {
			vcpu += a.Resources["VCPU"]
			vgpu += a.Resources["VGPU"]
			if provider == cn1 && a.Resources["VGPU"] > 0 {
				where = "old"
			}
		}
		if vcpu != 1 || vgpu != i+1 || got.Project != "p" || got.Type != "INSTANCE" {
			return fmt.Sprintf("consumer %d: %s", i, body)
		}
		places[where] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(places)), " and ")
}

// contents are all files below a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	check(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		out[path] = string(content)
		return err
	}))
	return out
}

func dsn(file string) string { return "sqlite://" + file }

// TestMigrate: a host is moved while all services are down, once.
func TestMigrate(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	testMigrate(t, bundled)
}

// TestRealMigrate is the same with a database of OpenStack's Placement.
func TestRealMigrate(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	testMigrate(t, debian)
}

func testMigrate(t *testing.T, ask asking) {
	t.Helper()
	s, file := onDatabaseOf(t, ask)
	migrate := []string{"placement", "migrate-compute-inventory", "--database", dsn(file), "--all-nodes"}
	before := contents(t, filepath.Dir(file))
	same := func(what string) {
		t.Helper()
		if d := cmp.Diff(slices.Sorted(maps.Keys(before)),
			slices.Sorted(maps.Keys(contents(t, filepath.Dir(file))))); d != "" {
			t.Errorf("%s: files came or went: %s", what, d)
		}
		for path, content := range contents(t, filepath.Dir(file)) {
			if content != before[path] {
				t.Errorf("%s: %s was written", what, path)
			}
		}
	}

	// Nothing needs to move: nothing is written, whatever else the driver would change.
	s.configure("", `class_renames = {}`)
	s.want("migrate-nothing.txt", cli.ExitDone, migrate...)
	same("nothing to move")

	s.configure("vgpu-children", "")
	check(t, os.RemoveAll(filepath.Join(s.dir, "state")))
	s.want("migrate-dry-run.txt", cli.ExitDone, append(migrate, "--dry-run")...)
	same("dry run")
	if _, err := os.Stat(filepath.Join(s.dir, "state")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dry run made the state directory: %v", contents(t, filepath.Join(s.dir, "state")))
	}

	s.want("migrate.txt", cli.ExitDone, "placement", "migrate-compute-inventory", "--database", dsn(file), "--node",
		"cn1")
	testproc.Equal(t, placeOf(t, file, ask), "new", "%v")
	entries, err := journal.Read(filepath.Join(s.dir, "state"))
	if err != nil || len(entries) != 1 || entries[0].Outcome != "happened" {
		t.Errorf("%+v, %v", entries, err)
	}

	before = contents(t, filepath.Dir(file))
	s.want("migrate-nothing.txt", cli.ExitDone, migrate...)
	same("once more")
	if code, out, _ := s.run(append(migrate, "--output", "json")...); code != cli.ExitDone ||
		!strings.Contains(out, `"outcome": "nothing to move"`) {
		t.Errorf("%d, %s", code, out)
	}
}

// TestMigrateRefuses: with the reason, and without a byte changed.
func TestMigrateRefuses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	testMigrateRefuses(t, bundled)
}

// TestRealMigrateRefuses is the same with a database of OpenStack's Placement.
func TestRealMigrateRefuses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	testMigrateRefuses(t, debian)
}

func testMigrateRefuses(t *testing.T, ask asking) {
	t.Helper()
	s, file := onDatabaseOf(t, ask)
	s.configure("vgpu-children", "")
	before := contents(t, filepath.Dir(file))
	refused := func(code int, words, database string, args ...string) {
		t.Helper()
		got, _, stderr := s.run(
			append([]string{"placement", "migrate-compute-inventory", "--database", database}, args...)...)
		if got != code || !strings.Contains(stderr, words) {
			t.Errorf("%v: exit code %d, want %d; %q is not in\n%s", args, got, code, words, stderr)
		}
	}
	refused(cli.ExitConfig, `the nodes are ["cn1"]`, dsn(file), "--node", "cn9")
	refused(cli.ExitConfig, "is not a file", dsn(s.dir), "--all-nodes")
	refused(cli.ExitUsage, "select nodes", dsn(file))
	refused(cli.ExitUsage, "select nodes", dsn(file), "--all-nodes", "--node", "cn1")
	refused(cli.ExitUsage, "--database is required", "", "--all-nodes")
	refused(cli.ExitConfig, "there is no database", dsn(file+"x"), "--all-nodes")
	refused(cli.ExitUsage, "may not hold a password", "mysql://u:secret@h/placement", "--all-nodes")
	refused(cli.ExitUsage, "not supported", "redis://h/placement", "--all-nodes")
	if d := cmp.Diff(before[file], contents(t, filepath.Dir(file))[file]); d != "" {
		t.Error("the database was written")
	}

	// Another program's tables, a former version's, and none.
	other := filepath.Join(s.dir, "other.db")
	tables := func(statements string) {
		t.Helper()
		check(t, os.RemoveAll(other))
		db := testproc.Try(sql.Open("sqlite", other)).Or(t)
		_, err := db.ExecContext(t.Context(), statements)
		check(t, errors.Join(err, db.Close()))
	}
	tables("CREATE TABLE recipes (id INTEGER)")
	refused(cli.ExitProtect, "refused", dsn(other), "--all-nodes")
	tables("CREATE TABLE resource_providers (id INTEGER); CREATE TABLE alembic_version (version_num TEXT); INSERT " +
		"INTO alembic_version VALUES ('b4ed3a175331')")
	refused(cli.ExitProtect, "too old", dsn(other), "--all-nodes")
	check(t, os.WriteFile(other, nil, 0o600))
	refused(cli.ExitProtect, "no tables of Placement", dsn(other), "--all-nodes")

	// While an agent runs, also for a dry run.
	check(t, os.MkdirAll(filepath.Join(s.dir, "state"), 0o700))
	lock := testproc.Try(os.Create(filepath.Join(s.dir, "state", "agent.lock"))).Or(t)
	check(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	refused(cli.ExitProtect, "the agent runs on", dsn(file), "--all-nodes")
	refused(cli.ExitProtect, "the agent runs on", dsn(file), "--all-nodes", "--dry-run")
	check(t, lock.Close())

	// A reshape that does not pass the checks.
	s.configure("vgpu-children", `faults.reshape = "invent"`)
	code, stdout, _ := s.run("placement", "migrate-compute-inventory", "--database", dsn(file), "--all-nodes")
	if code != cli.ExitProtect || !strings.Contains(stdout, "would be added") ||
		!strings.Contains(stdout, "nothing was moved") {
		t.Errorf("%d\n%s", code, stdout)
	}
	s.configure("vgpu-children", `not_ready = "the daemon is down"`)
	code, stdout, _ = s.run("placement", "migrate-compute-inventory", "--database", dsn(file), "--all-nodes")
	if code != cli.ExitFailed || !strings.Contains(stdout, "the daemon is down") {
		t.Errorf("%d\n%s", code, stdout)
	}
	if contents(t, filepath.Dir(file))[file] != before[file] {
		t.Error("the database was written")
	}

	// While one of our servers has it open. (That adopts a database of the other program.)
	s.configure("vgpu-children", "")
	server, err := placement.New(t.Context(),
		placement.Config{Database: dsn(file), Auth: placement.Auth{Strategy: placement.NoAuth}, Logger: zerolog.Nop()})
	check(t, err)
	refused(cli.ExitProtect, "stop that one first", dsn(file), "--all-nodes")
	refused(cli.ExitProtect, "stop that one first", dsn(file), "--all-nodes", "--dry-run")
	check(t, server.Close())
	testproc.Equal(t, placeOf(t, file, ask), "old", "%v")
}

// TestRealMigrateKilled: wherever it is killed, the database has the old or the new layout, the
// journal knows which, and the next run brings it to the end. The kill comes at the n-th change of
// a file of the database or the state directory, of which a whole run makes about 60.
func TestRealMigrateKilled(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	stride := 2
	if !testproc.Nightly() {
		stride = 6 + int(testproc.Seed(t)%4)
	}
	s := newSite(t)
	s.url = "http://127.0.0.1:1"
	s.configure("vgpu-children", "")
	file, state := filepath.Join(s.dir, "db", "placement.db"), filepath.Join(s.dir, "state")
	command := []string{"placement", "migrate-compute-inventory", "--database", dsn(file), "--all-nodes",
		"--config", filepath.Join(s.dir, "agent.toml")}
	program := filepath.Join(s.dir, "compute-agent")
	self := testproc.Try(os.Executable()).Or(t)
	check(t, os.Symlink(self, program))
	seen := map[string]int{}
	for n := 1; ; {
		check(t, errors.Join(os.RemoveAll(filepath.Dir(file)), os.RemoveAll(state),
			os.MkdirAll(filepath.Dir(file), 0o700), os.MkdirAll(filepath.Join(state, journal.DirName), 0o700)))
		bundled(t, file, occupied())
		cmd := exec.CommandContext(t.Context(), program, command...)
		cmd.Env = append(os.Environ(), "TMPDIR="+s.dir) // where the copy is left
		killed := runAndKill(t, cmd, n, filepath.Dir(file), state, filepath.Join(state, journal.DirName))
		layout := placeOf(t, file, bundled)
		entries := testproc.Try(journal.Read(state)).Or(t)
		outcome := "none"
		if len(entries) > 0 {
			outcome = "open"
			if !entries[0].Open() {
				outcome = string(entries[0].Outcome)
			}
		}
		seen[layout+", journal "+outcome]++
		if layout != "old" && layout != "new" || layout == "new" && outcome != "open" && outcome != "happened" ||
			layout == "old" && outcome == "happened" {
			t.Fatalf("killed at change %d: %s, journal %s", n, layout, outcome)
		}
		if code, out, stderr := s.run(command[:len(command)-2]...); code != cli.ExitDone {
			t.Fatalf("after the kill at change %d: %d\n%s%s", n, code, out, stderr)
		}
		entries = testproc.Try(journal.Read(state)).Or(t)
		if got := placeOf(t, file, bundled); got != "new" || slices.ContainsFunc(entries, journal.Entry.Open) {
			t.Fatalf("after the kill at change %d and another run: %s, %+v", n, got, entries)
		}
		if killed {
			n += stride
		} else if seen["old, journal none"] > 0 {
			break
		} // else it was over before this test killed it, at its first changes: once more
	}
	t.Log(seen)
	if seen["old, journal none"] == 0 || seen["new, journal happened"] == 0 {
		t.Errorf("the kills did not reach both ends: %v", seen)
	}
}

// runAndKill runs a command and kills it at the n-th change below the directories. It reports
// whether that came before the end.
func runAndKill(t *testing.T, cmd *exec.Cmd, n int, dirs ...string) bool {
	t.Helper()
	watch := testproc.Try(unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)).Or(t)
	events := os.NewFile(uintptr(watch), "inotify")
	for _, dir := range dirs {
		_, err := unix.InotifyAddWatch(watch, dir, unix.IN_CREATE|unix.IN_MODIFY|unix.IN_MOVED_TO|unix.IN_DELETE)
		check(t, err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	check(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	reached := make(chan struct{})
	go func() {
		buf := make([]byte, unix.SizeofInotifyEvent+unix.NAME_MAX+1) // one event at a time, or a few
		for left := n; ; {
			size, err := events.Read(buf)
			if err != nil {
				return
			}
			for at := 0; at < size; {
				at += unix.SizeofInotifyEvent + int(uint32(buf[at+12])|uint32(buf[at+13])<<8)
				left--
			}
			if left <= 0 {
				close(reached)
				return
			}
		}
	}()
	defer func() { _ = events.Close() }()
	select {
	case <-reached:
		_ = cmd.Process.Signal(syscall.SIGKILL) // it may have ended by itself
		var exit *exec.ExitError
		return errors.As(<-ended, &exit) && !exit.Exited()
	case err := <-ended:
		if err != nil {
			t.Fatalf("%v\n%s", err, stderr.String())
		}
		return false
	}
}

// TestMigrateByAnotherName: a link to the database leads to all that belongs to it, so a server
// that has it open is noticed by its own name, and so is what a crash left in the write-ahead log.
func TestMigrateByAnotherName(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.url = "http://127.0.0.1:1"
	s.configure("vgpu-children", "")
	file, link := filepath.Join(s.dir, "db", "placement.db"), filepath.Join(s.dir, "link.db")
	check(t, os.MkdirAll(filepath.Dir(file), 0o700))
	check(t, os.Symlink(file, link))
	migrate := func(code int, outcome string, args ...string) {
		t.Helper()
		got, stdout, stderr := s.run(
			append([]string{"placement", "migrate-compute-inventory", "--database", dsn(link), "--all-nodes"},
				args...)...)
		if got != code || !strings.Contains(stdout+stderr, outcome) {
			t.Errorf("exit code %d, want %d; %q is not in\n%s%s", got, code, outcome, stdout, stderr)
		}
	}
	server, err := placement.New(t.Context(),
		placement.Config{Database: dsn(file), Auth: placement.Auth{Strategy: placement.NoAuth}, Logger: zerolog.Nop()})
	check(t, err)
	migrate(cli.ExitProtect, "stop that one first", "--dry-run")
	check(t, server.Close())

	// All that was written is still in the log, as after a crash.
	crashed := filepath.Join(s.dir, "crashed")
	check(t, os.MkdirAll(crashed, 0o700))
	bundled(t, file, occupied()[:1])
	db := testproc.Try(sql.Open("sqlite", "file:"+file+"?_pragma=wal_autocheckpoint(0)")).Or(t)
	_, err = db.ExecContext(t.Context(), "UPDATE resource_providers SET name = 'cn1', generation = generation")
	check(t, err)
	bundled(t, file, occupied()[1:])
	for name, content := range contents(t, filepath.Dir(file)) {
		check(t, os.WriteFile(filepath.Join(crashed, filepath.Base(name)), []byte(content), 0o600))
	}
	check(t, db.Close())
	if info, err := os.Stat(filepath.Join(crashed, "placement.db-wal")); err != nil || info.Size() == 0 {
		t.Fatalf("there is no log: %v", err)
	}
	check(t, os.Remove(filepath.Join(crashed, "placement.db-shm")))
	check(t, os.RemoveAll(filepath.Dir(file)))
	check(t, os.Rename(crashed, filepath.Dir(file)))
	migrate(cli.ExitDone, "reshape cn1", "--dry-run")
}

// TestMigrateOfANodeOfTwoDrivers: which of them has it would be chance, so nothing moves.
func TestMigrateOfANodeOfTwoDrivers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.url = "http://127.0.0.1:1"
	s.configure("vgpu-children",
		"", fmt.Sprintf(
			"[drivers.other]\npath = %q\n[drivers.other.config]\nlayout = \"flat\"\nnodes = [{name = \"cn1\", uuid "+
				"= %q, inventories = {VCPU = {total = 8}, VGPU = {total = 8}}}]",
			filepath.Join(s.dir, "compute-driver-fake"), cn1))
	file := filepath.Join(s.dir, "db", "placement.db")
	check(t, os.MkdirAll(filepath.Dir(file), 0o700))
	bundled(t, file, occupied())
	code, stdout, stderr := s.run("placement", "migrate-compute-inventory", "--database", dsn(file), "--node", "cn1")
	if code != cli.ExitProtect || !strings.Contains(stdout, "is named by the drivers fake and other") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	testproc.Equal(t, placeOf(t, file, bundled), "old", "%v")
}

// TestStartAfterMigrate: what the migration of a host without an identity leaves does not keep the
// agent from its first start.
func TestStartAfterMigrate(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	url := s.url
	file := filepath.Join(s.dir, "db", "placement.db")
	check(t, os.MkdirAll(filepath.Dir(file), 0o700))
	bundled(t, file, occupied())
	s.url = "http://127.0.0.1:1"
	s.configure("vgpu-children", "")
	for range 2 {
		if code, stdout, stderr := s.run("placement", "migrate-compute-inventory", "--database", dsn(file),
			"--node", "cn1"); code != cli.ExitDone {
			t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
		}
	}
	server, err := placement.New(t.Context(),
		placement.Config{Database: dsn(file), Auth: placement.Auth{Strategy: placement.NoAuth}, Logger: zerolog.Nop()})
	check(t, err)
	defer func() { check(t, server.Close()) }()
	s.http, s.url = server.Handler(), url
	s.configure("vgpu-children", "")
	s.agent()()
	testproc.Equal(t, s.counted(), 0, "%d writes after the migration")
}
