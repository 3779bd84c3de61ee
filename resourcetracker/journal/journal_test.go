// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	root  = "11111111-0000-4000-8000-000000000001"
	other = "11111111-0000-4000-8000-000000000002"
	guest = "99999999-0000-4000-8000-000000000001"
)

func sample() *reportclient.Reshape {
	generation := int64(3)
	holds := func(provider string) providertree.ProviderResources {
		return providertree.ProviderResources{provider: {"VGPU": 2}}
	}
	inv := providertree.Inventory{Total: 4, AllocationRatio: 1.5}.Normalize()
	return &reportclient.Reshape{
		Providers: []reportclient.ReshapedProvider{
			{UUID: root, Name: "cn1", Generation: 7, Before: providertree.Inventories{"VGPU": inv},
				After: providertree.Inventories{}},
			{UUID: other, Name: "cn1_gpu", Generation: 0,
				Before: providertree.Inventories{}, After: providertree.Inventories{"VGPU": inv}},
		},
		Consumers: []reportclient.ReshapedConsumer{{
			UUID: guest, Generation: &generation, ProjectID: "p", UserID: "u", Before: holds(root), After: holds(other),
		}},
	}
}

// fragile is a disk of which one step fails, from a given call on.
type fragile struct {
	realDisk
	step string
	err  error
}

func (f *fragile) fail(step string) error {
	if f.step == step {
		return f.err
	}
	return nil
}

func (f *fragile) MkdirAll(dir string) error {
	return errors.Join(f.fail("mkdir"), f.realDisk.MkdirAll(dir))
}
func (f *fragile) WriteFile(path string, content []byte) error {
	if err := f.fail("write"); err != nil { // half of it arrives
		return errors.Join(f.realDisk.WriteFile(path, content[:len(content)/2]), err)
	}
	return f.realDisk.WriteFile(path, content)
}

func (f *fragile) Rename(from, to string) error {
	if err := f.fail("rename"); err != nil {
		return err
	}
	return f.realDisk.Rename(from, to)
}

func (f *fragile) Remove(path string) error {
	if err := f.fail("remove"); err != nil {
		return err
	}
	return f.realDisk.Remove(path)
}

func (f *fragile) SyncDir(dir string) error {
	if err := f.fail("syncdir"); err != nil {
		return err
	}
	return f.realDisk.SyncDir(dir)
}

func open(t *testing.T, stateDir string) *Journal {
	t.Helper()
	j := New(stateDir)
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	j.now = func() time.Time { now = now.Add(time.Second); return now }
	return j
}

var check = testproc.Check

func read(t *testing.T, stateDir string) []Entry {
	t.Helper()
	return testproc.Try(Read(stateDir)).Or(t)
}

func TestEntryIsKeptWhole(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	j := open(t, dir)
	j.SetLabel(root, Label{Node: "cn1", Undoes: 4})
	check(t, j.Begin(root, sample()))
	begun := read(t, dir)
	want := Entry{Version: 1, ID: 1, Root: root, Node: "cn1", Undoes: 4,
		Begun: time.Date(2026, 11, 21, 8, 0, 1, 0, time.UTC), Reshape: sample(),
		File: filepath.Join(dir, DirName, "000001-"+root+".open.json")}
	testproc.Samef(t, cmp.Diff([]Entry{want}, begun, cmpopts.EquateErrors()), "begun")
	unresolved, err := j.Unresolved(root)
	if err != nil || len(unresolved) != 1 || !unresolved[0].Open() {
		t.Errorf("Unresolved after Begin: got %v, %v, want one open entry", unresolved, err)
	}
	check(t, j.End(root, reportclient.ReshapeHappened))
	want.Outcome, want.Ended, want.File = reportclient.ReshapeHappened, time.Date(2026, 11, 21, 8, 0, 2, 0, time.UTC),
		filepath.Join(dir, DirName, "000001-"+root+".json")
	testproc.Samef(t, cmp.Diff([]Entry{want}, read(t, dir), cmpopts.EquateErrors()), "ended")
	found, err := Find(dir, 1)
	if d := cmp.Diff(want, found, cmpopts.EquateErrors()); err != nil || d != "" {
		t.Errorf("Find: error %v, difference (-want +got)\n%s", err, d)
	}
	for path, mode := range map[string]os.FileMode{want.File: 0o600, filepath.Dir(want.File): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	testproc.Try(Find(dir, 2)).ErrorIs(t, ErrUnknownEntry, "Find: %v")
}

// version1 is a file of the first format: the whole reshape, and no request.
const version1 = `{
  "version": 1, "id": 1, "root": "` + root + `", "node": "cn1", "begun": "2026-11-21T08:00:01Z",
  "reshape": {
    "resource_providers": [
      {"uuid": "` + root + `", "name": "cn1", "resource_provider_generation": 7,
       "before": {"VGPU": {"total": 4, "reserved": 0, "min_unit": 1, "max_unit": 2147483647, "step_size": 1, "allocation_ratio": 1.5}}, "after": {}},
      {"uuid": "` + other + `", "name": "cn1_gpu", "resource_provider_generation": 0,
       "before": {}, "after": {"VGPU": {"total": 4, "reserved": 0, "min_unit": 1, "max_unit": 2147483647, "step_size": 1, "allocation_ratio": 1.5}}}
    ],
    "consumers": [
      {"uuid": "` + guest + `", "consumer_generation": 3, "project_id": "p", "user_id": "u",
       "before": {"` + root + `": {"VGPU": 2}}, "after": {"` + other + `": {"VGPU": 2}}}
    ]
  }
}`

// TestFileOfVersion1: what a former version of the agent left open is read, and stays whole when
// its outcome is recorded.
func TestFileOfVersion1(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	check(t, os.Mkdir(filepath.Join(dir, DirName), 0o700))
	check(t, os.WriteFile(filepath.Join(dir, DirName, fileName(1, root, true)), []byte(version1), 0o600))
	j := open(t, dir)
	unresolved, err := j.Unresolved(root)
	if err != nil || len(unresolved) != 1 {
		t.Fatalf("Unresolved of a file of version 1: got %v, %v, want one entry", unresolved, err)
	}
	check(t, j.Resolve(unresolved[0], reportclient.ReshapeHappened))
	if err := j.Resolve(unresolved[0], reportclient.ReshapeRefused); err == nil {
		t.Error("its outcome was recorded a second time")
	}
	begun := time.Date(2026, 11, 21, 8, 0, 1, 0, time.UTC)
	want := Entry{
		Version: 1, ID: 1, Root: root, Node: "cn1", Begun: begun, Ended: begun, Outcome: reportclient.ReshapeHappened,
		Compared: true, Reshape: sample(),
		File: filepath.Join(dir, DirName, fileName(1, root, false)),
	}
	testproc.Same(t, cmp.Diff([]Entry{want}, read(t, dir), cmpopts.EquateErrors()))
}

// posted keeps the bodies of the requests that it answers.
type posted [][]byte

func (p *posted) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	*p = append(*p, body)
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, err
}

// TestTheRequestItselfIsKept: the file holds the body of the POST, byte for byte, also once its
// outcome is known.
func TestTheRequestItselfIsKept(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir, requests := t.TempDir(), &posted{}
	client, err := reportclient.New(
		reportclient.Config{Config: placementclient.Config{URL: "http://placement", Transport: requests},
			ReshapeLog: open(t, dir)})
	check(t, err)
	check(t, client.Apply(t.Context(), root, sample().Plan()))
	entry := testproc.Try(Find(dir, 1)).Or(t)
	content := testproc.Try(os.ReadFile(entry.File)).Or(t)
	var kept file
	check(t, json.Unmarshal(content, &kept))
	if len(*requests) != 1 || !bytes.Equal(kept.Request, (*requests)[0]) {
		t.Errorf("kept %s, posted %s", kept.Request, *requests)
	}
	if kept.Version != 2 || bytes.Contains(kept.Former, []byte("after")) {
		t.Errorf("what was asked for is there twice: %s", content)
	}
	testproc.Same(t, cmp.Diff(sample(), entry.Reshape))
}

// TestCrashAtEveryStep: whichever step of writing comes last before a crash, the next start finds
// an entry that is open, or finished, or none; never half of one, and never one of a reshape that
// was not allowed to be posted as finished.
func TestCrashAtEveryStep(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, cause := range []error{syscall.ENOSPC, syscall.EACCES, syscall.EIO} {
		for _, step := range []string{"mkdir", "write", "rename", "syncdir"} {
			t.Run(fmt.Sprintf("begin, %s, %v", step, cause), func(t *testing.T) {
				dir := t.TempDir()
				j := open(t, dir)
				if step != "mkdir" {
					check(t, os.Mkdir(filepath.Join(dir, DirName), 0o700))
				}
				broken := &fragile{step: step, err: cause}
				j.disk = broken
				if err := j.Begin(root, sample()); !errors.Is(err, cause) {
					t.Fatalf("the reshape could be posted: %v", err)
				}
				if left, _ := filepath.Glob(filepath.Join(dir, DirName, "*")); len(left) != 0 {
					t.Errorf("of a reshape that was never posted there is %q", left)
				}
				broken.step = "" // space was made
				check(t, j.Begin(root, sample()))
				check(t, j.End(root, reportclient.ReshapeHappened))
				if entries := read(t, dir); len(entries) != 1 || entries[0].Outcome != reportclient.ReshapeHappened {
					t.Errorf("the entries after a repetition: got %v, want one that happened", entries)
				}
			})
			if step == "mkdir" {
				continue
			}
			t.Run(fmt.Sprintf("end, %s, %v", step, cause), func(t *testing.T) {
				dir := t.TempDir()
				j := open(t, dir)
				check(t, j.Begin(root, sample()))
				j.disk = &fragile{step: step, err: cause}
				if err := j.End(root, reportclient.ReshapeHappened); !errors.Is(err, cause) {
					t.Fatalf("End: got %v, want the failure of the disk", err)
				}
				if err := j.Begin(root, sample()); err == nil {
					t.Error("another reshape begins before it is known what became of the last")
				}
				next := open(t, dir) // after the crash
				unresolved, err := next.Unresolved(root)
				entries := read(t, dir)
				if err != nil || len(entries) != 1 || entries[0].Err != nil {
					t.Fatalf("the entries after a crash in End: got %v, %v, want one", entries, err)
				}
				if step == "syncdir" { // it is in place, if the system did not lose it
					if len(unresolved) != 0 || entries[0].Outcome != reportclient.ReshapeHappened {
						t.Errorf("the entries after a crash behind the rename: got %v, want one that happened", entries)
					}
					return
				}
				if len(unresolved) != 1 {
					t.Fatalf("Unresolved after a crash in End: got %v, want one entry", unresolved)
				}
				check(t, next.Resolve(unresolved[0], reportclient.ReshapeRefused))
				entries = read(t, dir)
				if entries[0].Outcome != reportclient.ReshapeRefused || !entries[0].Compared {
					t.Errorf("the entry after Resolve: got %+v, want it refused and compared", entries[0])
				}
			})
		}
	}
}

// TestEntryThatCannotBeWithdrawnIsOpen: it may be found after a crash, so it counts as one of which
// nothing is known.
func TestEntryThatCannotBeWithdrawnIsOpen(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	j := open(t, dir)
	check(t, os.Mkdir(filepath.Join(dir, DirName), 0o700))
	j.disk = &stuck{}
	if err := j.Begin(root, sample()); !errors.Is(err, syscall.EIO) {
		t.Fatalf("Begin: got %v, want EIO", err)
	}
	if unresolved, err := j.Unresolved(root); err != nil || len(unresolved) != 1 {
		t.Errorf("Unresolved after an entry that cannot be withdrawn: got %v, %v, want one", unresolved, err)
	}
	j.disk = realDisk{}
	check(t, j.Begin(other, sample()))
	if entries := read(t, dir); len(entries) != 2 || entries[1].ID != 2 {
		t.Errorf("the next entry: %+v", entries)
	}
}

// stuck puts a file in place, and can neither sync nor remove it.
type stuck struct{ realDisk }

func (stuck) SyncDir(string) error { return syscall.EIO }
func (stuck) Remove(string) error  { return syscall.EIO }

// TestFinishedEntryCounts: a crash between the writing of an outcome and the removal of the open
// file leaves both.
func TestFinishedEntryCounts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	j := open(t, dir)
	check(t, j.Begin(root, sample()))
	j.disk = &fragile{step: "remove", err: syscall.EIO}
	check(t, j.End(root, reportclient.ReshapeHappened))
	if files, err := os.ReadDir(j.Dir()); err != nil || len(files) != 2 {
		t.Fatalf("the files after a crash in End: got %v, %v, want two", files, err)
	}
	check(t, os.WriteFile(filepath.Join(j.Dir(), files.TmpPrefix+"x"), nil, 0o600))
	next := open(t, dir)
	damaged, err := next.Load()
	if err != nil || len(damaged) != 0 {
		t.Errorf("Load: got %v, %v, want no damaged entry", damaged, err)
	}
	if unresolved, err := next.Unresolved(root); err != nil || len(unresolved) != 0 {
		t.Errorf("Unresolved: got %v, %v, want no entry", unresolved, err)
	}
	if files, err := os.ReadDir(j.Dir()); err != nil || len(files) != 1 {
		t.Errorf("not tidied up: %v, %v", files, err)
	}
}

// TestHistoryIsOfOneNode, without what cannot be read.
func TestHistoryIsOfOneNode(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	j := open(t, dir)
	for _, of := range []string{root, other, root} {
		check(t, j.Begin(of, sample()))
		check(t, j.End(of, reportclient.ReshapeHappened))
	}
	ids := func() (out []int64) {
		t.Helper()
		history := testproc.Try(j.History(root)).Or(t)
		for _, e := range history {
			out = append(out, e.ID)
		}
		return out
	}
	testproc.Same(t, cmp.Diff([]int64{1, 3}, ids()))
	check(t, os.WriteFile(filepath.Join(j.Dir(), fileName(1, root, false)), nil, 0o600))
	testproc.Samef(t, cmp.Diff([]int64{3}, ids()), "with one that is damaged")
	check(t, errors.Join(os.RemoveAll(j.Dir()), os.WriteFile(j.Dir(), nil, 0o600)))
	if history, err := j.History(root); err == nil {
		t.Errorf("of no directory: %v", history)
	}
}

func TestUnknownOutcomeStaysOpen(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	j := open(t, t.TempDir())
	check(t, j.Begin(root, sample()))
	check(t, j.End(root, reportclient.ReshapeUnknown))
	unresolved, err := j.Unresolved(root)
	if err != nil || len(unresolved) != 1 {
		t.Fatalf("Unresolved after an unknown outcome: got %v, %v, want one entry", unresolved, err)
	}
	if of, err := j.Unresolved(other); err != nil || len(of) != 0 {
		t.Errorf("another node: %v, %v", of, err)
	}
	check(t, j.Begin(other, sample())) // another node's is its own affair
	check(t, j.Resolve(unresolved[0], reportclient.ReshapeUnknown))
	if unresolved, err = j.Unresolved(root); err != nil || len(unresolved) != 0 {
		t.Errorf("Unresolved after Resolve: got %v, %v, want no entry", unresolved, err)
	}
	if err := j.End(root, reportclient.ReshapeHappened); err == nil {
		t.Error("the end of a reshape that never began was taken")
	}
}

// TestDamagedFiles: damaged files of finished reshapes are reported and stop nothing; one of an
// open reshape is reported as unresolved for its node.
func TestDamagedFiles(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	damages := map[string]string{
		"cut short":          `{"version": 1, "id": 1, "ro`,
		"empty":              ``,
		"of another program": `[1, 2, 3]`,
		"of a newer agent": `{"version": 3, "id": 1, "root": "` + root +
			`", "outcome": "happened", "reshape": {}, "request": {}}`,
		"without a request": `{"version": 2, "id": 1, "root": "` + root + `", "outcome": "happened", "reshape": {}}`,
		"without a provider": `{"version": 2, "id": 1, "root": "` + root +
			`", "outcome": "happened", "reshape": {"resource_providers": [{"uuid": "` + root + `"}]}, "request": {}}`,
		"without a consumer": `{"version": 2, "id": 1, "root": "` + root +
			`", "outcome": "happened", "reshape": {"consumers": [{"uuid": "` + guest + `"}]}, "request": {}}`,
		"of another name":   `{"version": 1, "id": 5, "root": "` + root + `", "outcome": "happened", "reshape": {}}`,
		"without a reshape": `{"version": 1, "id": 1, "root": "` + root + `", "outcome": "happened"}`,
		"garbage":           "\x00\xff\x00",
	}
	for name, content := range damages {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			check(t, os.Mkdir(filepath.Join(dir, DirName), 0o700))
			write := func(name string) {
				check(t,
					os.WriteFile(filepath.Join(dir, DirName, name), []byte(content), 0o600))
			}
			write(fileName(1, root, false))
			j := open(t, dir)
			damaged, err := j.Load()
			if err != nil || len(damaged) != 1 || !errors.Is(damaged[0].Err, ErrUnreadable) ||
				damaged[0].ID != 1 || damaged[0].Open() {
				t.Fatalf("Load: got %+v, %v, want the damaged entry 1", damaged, err)
			}
			check(t, j.Begin(root, sample()))
			check(t, j.End(root, reportclient.ReshapeHappened))
			entries := read(t, dir)
			if len(entries) != 2 || entries[0].Damage == "" || entries[1].ID != 2 {
				t.Errorf("the entries: got %+v, want the damaged one and entry 2", entries)
			}
			testproc.Try(Find(dir, 1)).ErrorIs(t, ErrUnreadable, "Find: %v")
			write(fileName(3, other, true))
			j = open(t, dir)
			if damaged, err := j.Load(); err != nil || len(damaged) != 1 {
				t.Errorf("Load of the next run: got %+v, %v, want one damaged entry", damaged, err)
			}
			unresolved, err := j.Unresolved(other)
			if err != nil || len(unresolved) != 1 || !errors.Is(unresolved[0].Err, ErrUnreadable) ||
				unresolved[0].Root != other {
				t.Errorf("Unresolved of the other node: got %+v, %v, want one unreadable entry", unresolved, err)
			}
			check(t, j.Begin(root, sample()))
		})
	}
}

func TestOtherFilesAreLeftAlone(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	check(t, os.Mkdir(filepath.Join(dir, DirName), 0o700))
	names := []string{"README", "000001.json", "x-" + root + ".json", "000001-not-a-uuid.json", "0-" + root + ".json",
		"000001-" + strings.ToUpper("aaaaaaaa-0000-4000-8000-00000000000a") + ".json"}
	for _, name := range names {
		check(t, os.WriteFile(filepath.Join(dir, DirName, name), []byte("mine"), 0o600))
	}
	j := open(t, dir)
	check(t, j.Begin(root, sample()))
	if entries := read(t, dir); len(entries) != 1 || entries[0].ID != 1 {
		t.Errorf("the entries beside other files: got %v, want entry 1", entries)
	}
	files, err := os.ReadDir(j.Dir())
	if err != nil || len(files) != len(names)+1 {
		t.Errorf("the files: got %v, %v, want one more than the others", files, err)
	}
}

// TestOldEntriesGo: a hundred finished ones are kept, those that did not happen go first, and none
// that is open goes.
func TestOldEntriesGo(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	j := open(t, dir)
	check(t, j.Begin(other, sample())) // 1, never ends
	check(t, j.Begin(root, sample()))  // 2, the only one that happened
	check(t, j.End(root, reportclient.ReshapeHappened))
	for range keep + 4 {
		check(t, j.Begin(root, sample()))
		check(t, j.End(root, reportclient.ReshapeRefused))
	}
	entries := read(t, dir)
	if len(entries) != keep+1 || entries[0].ID != 1 ||
		entries[1].ID != 2 || entries[2].ID != 8 || entries[keep].ID != keep+6 {
		t.Errorf("%d entries, from %d, %d and %d to %d",
			len(entries), entries[0].ID, entries[1].ID, entries[2].ID, entries[len(entries)-1].ID)
	}
	next := open(t, dir) // numbers go on
	check(t, next.Begin(root, sample()))
	if entries = read(t, dir); entries[len(entries)-1].ID != keep+7 {
		t.Errorf("the next number is %d", entries[len(entries)-1].ID)
	}
}

// FuzzRead: whatever is in a file, reading it neither fails as a whole nor panics.
func FuzzRead(f *testing.F) {
	valid, err := json.Marshal(Entry{Version: 1, ID: 1,
		Root: root, Outcome: reportclient.ReshapeHappened, Reshape: sample()})
	testproc.Check(f, err)
	f.Add(valid)
	second := file{Version: version,
		Entry: Entry{ID: 1, Root: root, Outcome: reportclient.ReshapeHappened, Reshape: sample()}}
	testproc.Check(f, second.encode())
	if valid, err = json.Marshal(second); err != nil {
		f.Fatal(err)
	}
	f.Add(valid)
	f.Add([]byte(`{"version":1,"id":1,"root":"` + root +
		`","outcome":"x","reshape":{"resource_providers":[{}],"consumers":[{"before":null}]}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := t.TempDir()
		check(t, os.Mkdir(filepath.Join(dir, DirName), 0o700))
		check(t, os.WriteFile(filepath.Join(dir, DirName, fileName(1, root, false)), content, 0o600))
		entries := read(t, dir)
		if len(entries) != 1 || entries[0].ID != 1 || entries[0].Root != root || entries[0].Open() {
			t.Errorf("the entries: got %+v, want the closed entry 1", entries)
		}
		if e := entries[0]; (e.Err == nil) != (e.Reshape != nil) {
			t.Errorf("the entry: got %+v, want a reshape or an error", e)
		}
	})
}
