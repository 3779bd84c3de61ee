// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func someRecord(t testing.TB) *Record {
	r := owned(t, tree(t, "cn1 VCPU=8,reserved=1,ratio=4.1 CUSTOM_A=1 HW_A @a\n  br_eth0 CUSTOM_X"),
		"cn1 driver VCPU:driver CUSTOM_A:operator HW_A:agent @a:driver\nbr_eth0 CUSTOM_X:operator")
	r.Created, r.Layout = true, 2
	return r
}

func TestSaveAndLoad(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	s := Open(dir)
	if r, err := s.Load(root); r != nil || err != nil {
		t.Fatalf("before there is one: %v, %v", r, err)
	}
	want := someRecord(t)
	must(t, s.Save(want))
	got := testproc.Try(Open(dir).Load(root)).Or(t)
	testproc.Samef(t, cmp.Diff(want, got), "(- saved, + loaded)")
	info, err := os.Stat(s.Path(root))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of the record: got %v, %v, want the mode 0600", info, err)
	}
	if info, err := os.Stat(filepath.Dir(s.Path(root))); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory of records: got %v, %v, want the mode 0700", info, err)
	}
}

// TestFileFormat: people read it, and backups outlive versions.
func TestFileFormat(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := owned(t, tree(t, "cn1 VCPU=8 HW_A"), "cn1 driver VCPU:driver HW_A:agent")
	content := testproc.Try(encode(r)).Or(t)
	want := `{
  "version": 1,
  "root": "` + root + `",
  "node": "cn1",
  "driver": "fake",
  "created": false,
  "shape": 0,
  "providers": {
    "` + root + `": {
      "name": "cn1",
      "owner": "driver",
      "inventories": {
        "VCPU": {
          "owner": "driver",
          "total": 8,
          "reserved": 0,
          "min_unit": 1,
          "max_unit": 2147483647,
          "step_size": 1,
          "allocation_ratio": 1
        }
      },
      "traits": {
        "HW_A": "agent"
      }
    }
  }
}
`
	testproc.Same(t, cmp.Diff(want, string(content)))
}

// TestFileFormatOfWhatIsHeldBack: an agent that does not know of it must not take the file for its
// own.
func TestFileFormatOfWhatIsHeldBack(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := owned(t, tree(t, "cn1 VGPU=2,reserved=2"), "cn1 VGPU:driver")
	owned := r.Providers[root].Inventories["VGPU"]
	owned.BeforeDrain = &providertree.Inventory{Total: 8}
	r.Providers[root].Inventories["VGPU"] = owned
	content := testproc.Try(encode(r)).Or(t)
	for _, want := range []string{`"version": 2,`, `
          "total": 2,
          "reserved": 2,`, `
          "held": {
            "total": 8,
            "reserved": 0,`} {
		if !strings.Contains(string(content), want) {
			t.Errorf("no %s in\n%s", want, content)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		r := drawRecord(t, drawWorld(t).Known)
		r.Created, r.Pending = rapid.Bool().Draw(t, "created"), rapid.Bool().Draw(t, "pending")
		first := testproc.Try(encode(r)).Or(t)
		got := testproc.Try(decode(first)).Or(t)
		second, err := encode(got)
		if err != nil || !got.Equal(r) || string(first) != string(second) {
			t.Fatalf("encoding again: error %v, difference %s", err, cmp.Diff(r, got))
		}
	})
}

func TestADamagedFileIsReportedAndNeverReplaced(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	whole := testproc.Try(encode(someRecord(t))).Or(t)
	edit := func(old, with string) string {
		if !strings.Contains(string(whole), old) {
			t.Fatalf("the file has no %s", old)
		}
		return strings.Replace(string(whole), old, with, 1)
	}
	for name, c := range map[string]struct {
		content string
		want    error
	}{
		"empty":                                  {"", ErrDamaged},
		"zeros":                                  {strings.Repeat("\x00", 100), ErrDamaged},
		"cut":                                    {string(whole[:len(whole)/2]), ErrDamaged},
		"no version":                             {"{}", ErrDamaged},
		"null":                                   {"null", ErrDamaged},
		"something follows":                      {string(whole) + "{}", ErrDamaged},
		"a field is unknown":                     {edit(`"created"`, `"creatde"`), ErrDamaged},
		"an owner is unknown":                    {edit(`"agent"`, `"ageot"`), ErrDamaged},
		"a uuid is invalid":                      {edit(uid("a"), "aggregate"), ErrDamaged},
		"a class is invalid":                     {edit(`"VCPU"`, `"vcpu"`), ErrDamaged},
		"an inventory is invalid":                {edit(`"total": 8`, `"total": -8`), ErrDamaged},
		"what is held is invalid":                {edit(`"total": 8`, `"held": {"total": -8}, "total": 8`), ErrDamaged},
		"of another node":                        {strings.ReplaceAll(string(whole), root, uid("cn2")), ErrDamaged},
		"a newer version":                        {edit(`"version": 1`, `"version": 4`), ErrNewer},
		"a newer version with an unknown layout": {`{"version": 7, "root": 3}`, ErrNewer},
	} {
		t.Run(name, func(t *testing.T) {
			s := Open(t.TempDir())
			must(t, os.MkdirAll(filepath.Dir(s.Path(root)), 0o700))
			must(t, os.WriteFile(s.Path(root), []byte(c.content), 0o600))
			_, err := s.Load(root)
			if !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), s.Path(root)) {
				t.Errorf("loading: %v", err)
			}
			testproc.ErrorIs(t, s.Save(someRecord(t)), c.want, "saving: %v")
			if now, err := os.ReadFile(s.Path(root)); err != nil || string(now) != c.content {
				t.Errorf("the file was replaced: %v", err)
			}
			if all, err := s.List(); !errors.Is(err, c.want) || len(all) != 0 {
				t.Errorf("listing: %v, %v", all, err)
			}
		})
	}
}

// TestProblemsOfAFileAreShort: ten of them, each with the beginning of what is wrong.
func TestProblemsOfAFileAreShort(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for n, want := range map[int]int{9: 9, 10: 10, 11: 10, 12: 10} {
		r := someRecord(t)
		for i := range n {
			r.Providers[fmt.Sprint(i)] = Provider{Name: "x"}
		}
		if lines := len(strings.Split(fmt.Sprint(r.validate()), "\n")); lines != want {
			t.Errorf("%d problems are reported of %d", lines, n)
		}
	}
}

func TestSaveRefusesARecordThatCouldNotBeRead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := Open(t.TempDir())
	for name, change := range map[string]func(*Record){
		"root":     func(r *Record) { r.Root = "../../etc/passwd" },
		"node":     func(r *Record) { r.Node = "" },
		"layout":   func(r *Record) { r.Layout = -1 },
		"owner":    func(r *Record) { r.Providers[root].Traits["HW_A"] = "" },
		"provider": func(r *Record) { r.Providers["x"] = Provider{Name: "x"} },
		"trait":    func(r *Record) { r.Providers[root].Traits["hw"] = Driver },
	} {
		r := someRecord(t)
		change(r)
		if err := s.Save(r); err == nil {
			t.Errorf("%s: it was saved", name)
		}
	}
	if err := s.Save(nil); err == nil {
		t.Error("nothing was saved")
	}
	for _, bad := range []string{"", "..", "../x", strings.ToUpper(root)} {
		if _, err := s.Load(bad); err == nil {
			t.Errorf("%q was loaded", bad)
		}
		if err := s.Remove(bad); err == nil {
			t.Errorf("%q was removed", bad)
		}
	}
}

func TestListAndRemove(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := Open(t.TempDir())
	if all, err := s.List(); err != nil || all != nil {
		t.Fatalf("List of a new store: got %v, %v, want nothing", all, err)
	}
	must(t, s.Remove(root))
	a, b := someRecord(t), &Record{Root: uid("cn2"), Node: "cn2", Driver: "fake"}
	must(t, s.Save(a))
	must(t, s.Save(b))
	dir := filepath.Dir(s.Path(root))
	must(t, os.WriteFile(filepath.Join(dir, files.TmpPrefix+uid("cn3")+suffix), []byte("half"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "README"), nil, 0o600))
	must(t, os.WriteFile(s.Path(uid("cn4")), []byte("{"), 0o600))
	all, err := s.List()
	if !errors.Is(err, ErrDamaged) || strings.Contains(err.Error(), "README") {
		t.Errorf("List: got %v, want ErrDamaged without README", err)
	}
	if len(all) != 2 || all[0].Root == all[1].Root {
		t.Errorf("List: got %v, want two records", all)
	}
	must(t, s.Remove(root))
	must(t, s.Remove(root))
	if r, err := s.Load(root); r != nil || err != nil {
		t.Errorf("Load of a removed record: got %v, %v, want nothing", r, err)
	}
	if r, err := s.Load(uid("cn2")); !r.Equal(b) || err != nil {
		t.Errorf("Load of the other record: got %v, %v, want it unchanged", r, err)
	}
}

// faultyDisk does as the real one until its steps are used up, then each fails: as after a crash,
// nothing more happens.
type faultyDisk struct {
	realDisk
	steps int
	log   []string
}

var errDisk = errors.New("the disk is gone")

func (d *faultyDisk) step(name string) error {
	if d.steps == 0 {
		return errDisk
	}
	d.steps--
	d.log = append(d.log, name)
	return nil
}

func (d *faultyDisk) MkdirAll(dir string) error {
	if err := d.step("mkdir"); err != nil {
		return err
	}
	return d.realDisk.MkdirAll(dir)
}

func (d *faultyDisk) WriteFile(path string, content []byte) error {
	if err := d.step("write"); err != nil {
		_ = d.realDisk.WriteFile(path, content[:len(content)/2])
		return err
	}
	return d.realDisk.WriteFile(path, content)
}

func (d *faultyDisk) Rename(from, to string) error {
	if err := d.step("rename"); err != nil {
		return err
	}
	return d.realDisk.Rename(from, to)
}

func (d *faultyDisk) Remove(path string) error {
	if err := d.step("remove"); err != nil {
		return err
	}
	return d.realDisk.Remove(path)
}

func (d *faultyDisk) SyncDir(dir string) error {
	if err := d.step("sync"); err != nil {
		return err
	}
	return d.realDisk.SyncDir(dir)
}

// TestCrashAtEveryStepOfASave: the old record or the new one is there, whole, and a save that said
// nothing has happened.
func TestCrashAtEveryStepOfASave(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for steps := range 4 {
		dir := t.TempDir()
		old, newer := someRecord(t), someRecord(t)
		newer.Layout = 7
		must(t, Open(dir).Save(old))
		s := Open(dir)
		s.disk = &faultyDisk{steps: steps}
		err := s.Save(newer)
		if (err == nil) != (steps == 3) || err != nil && !errors.Is(err, errDisk) {
			t.Errorf("%d steps: %v", steps, err)
		}
		got, loadErr := Open(dir).Load(root)
		if loadErr != nil || !got.Equal(old) && !got.Equal(newer) || err == nil && !got.Equal(newer) {
			t.Errorf("%d steps: %+v, %v", steps, got, loadErr)
		}
		must(t, Open(dir).Save(newer)) // leftover files do not block a save
	}
}

// TestWhatASaveCosts: nothing when it is the same, unless it is not known to be on disk.
func TestWhatASaveCosts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	disk := &faultyDisk{steps: 100}
	s := Open(t.TempDir())
	s.disk = disk
	expect := func(want ...string) {
		t.Helper()
		testproc.Same(t, cmp.Diff(want, disk.log))
		disk.log = nil
	}
	r := someRecord(t)
	must(t, s.Save(r))
	expect("mkdir", "sync", "write", "rename", "sync")
	must(t, s.Save(r))
	expect()
	r.Layout++
	must(t, s.Save(r))
	expect("write", "rename", "sync")
	r.Layout++
	disk.steps = 2
	testproc.ErrorIs(t, s.Save(r), errDisk, "Save: %v")
	disk.steps = 100
	expect("write", "rename")
	must(t, s.Save(r))
	expect("write", "rename", "sync")
	must(t, s.Remove(root))
	expect("remove", "remove", "sync")
}

var must = testproc.Check

// FuzzDecode: whatever is in the file, it is a record that can be saved as it is, or one of two
// errors.
func FuzzDecode(f *testing.F) {
	whole := testproc.Try(encode(someRecord(f))).Or(f)
	for _, seed := range []string{string(whole), string(whole[:len(whole)-9]), "", "null", "{}", `{"version":1}`,
		`{"version":2}`, `{"version":-1}`, `[]`, `{"version":1e9}`,
		`{"version":1,"root":"` + root + `","node":"cn1","providers":null}`,
		`{"version":1,"root":"` + root + `","node":"cn1","providers":{"` + root +
			`":{"name":"cn1","inventories":{"VCPU":{"owner":"driver","total":1,"allocation_ratio":1e308}}}}}`,
		`{"version":1,"root":"` + root + `","node":"cn1","providers":{"` + root +
			`":{"name":"cn1","traits":{"A":"driver","A":"agent"}}}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		r, err := decode(content)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewer) {
				t.Fatal(err)
			}
			if len(err.Error()) > 10_000+len(content) {
				t.Fatal("the error has no end")
			}
			return
		}
		again := testproc.Try(encode(r)).Or(t)
		same, err := decode(again)
		if err != nil || !same.Equal(r) {
			t.Fatalf("decoding what was encoded: %v\n%s", err, again)
		}
		r.Drift(&providertree.Tree{})
		Strip(&providertree.Tree{}, r)
	})
}
