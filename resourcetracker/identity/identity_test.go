// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/identity"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	mine     = "aaaaaaaa-0000-4000-8000-000000000001"
	other    = "aaaaaaaa-0000-4000-8000-000000000002"
	machineA = "0123456789abcdef0123456789abcdef"
	machineB = "ffffffffffffffffffffffffffffffff"
)

var cn1 = plugins.Node{UUID: mine, Name: "cn1"}

var check = testproc.Check

func open(t *testing.T, dir string) *identity.State {
	t.Helper()
	return testproc.Try(identity.Open(dir)).Or(t)
}

// TestSettle is the table in the package's documentation.
func TestSettle(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	first := identity.Self{UUID: mine, Host: "cn1", Machine: machineA}
	for name, c := range map[string]struct {
		before   identity.Self // of the former start; zero: this is the first
		reported bool
		renaming bool
		now      identity.Self
		refused  []string // parts of the refusal, "" if it goes on
		note     string
	}{
		"the first start": {now: first},
		"nothing changed": {before: first, reported: true, now: first},
		"compute_id was exchanged": {before: first,
			now:     identity.Self{UUID: other, Host: "cn1", Machine: machineA},
			refused: []string{other, mine, "exchanged", "adopt --uuid " + other, "adopt --uuid " + mine}},
		"reinstalled, or other hardware": {before: first,
			reported: true, now: identity.Self{UUID: mine, Host: "cn1", Machine: machineB}, note: "reinstalled"},
		"the machine has lost its id": {before: first, reported: true, now: identity.Self{UUID: mine, Host: "cn1"}},
		"the machine has got an id":   {before: identity.Self{UUID: mine, Host: "cn1"}, reported: true, now: first},
		"renamed": {before: first,
			reported: true, now: identity.Self{UUID: mine, Host: "cn2", Machine: machineA},
			refused: []string{"host cn1", "is named cn2 now", "cn1 (" + mine + ")",
				`agent.host = "cn1"`, "adopt --rename"}},
		"renamed before it was reported": {before: first,
			now: identity.Self{UUID: mine, Host: "cn2", Machine: machineA}, note: "reported nothing"},
		"a copy on another machine": {before: first,
			reported: true, now: identity.Self{UUID: mine, Host: "cn2", Machine: machineB},
			refused: []string{"another machine", "a copy", "empty "}},
		"a copy of a host never reported": {before: first,
			now: identity.Self{UUID: mine, Host: "cn2", Machine: machineB}, refused: []string{"a copy"}},
		"renamed or a copy, who knows": {before: first, reported: true, now: identity.Self{UUID: mine, Host: "cn2"},
			refused: []string{"it is unknown whether", "adopt --rename", "empty "}},
		"a renaming that broke off": {before: first,
			reported: true, renaming: true, now: identity.Self{UUID: mine, Host: "cn2", Machine: machineA},
			refused: []string{"is not finished", "adopt --rename --node cn2 --uuid " + mine}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.before.UUID != "" {
				s := open(t, dir)
				testproc.Try(s.Update(c.before)).Or(t)
				if c.reported {
					check(t, s.Reported(cn1, "fake"))
				}
				if c.renaming {
					check(t, s.BeginRename(mine, "cn1", "cn2"))
				}
			}
			before, _ := os.ReadFile(filepath.Join(dir, identity.FileName))
			note, err := open(t, dir).Update(c.now)
			if !strings.Contains(note, c.note) || (c.note == "") != (note == "") {
				t.Errorf("note %q, want %q", note, c.note)
			}
			if c.refused != nil {
				refused(t, err, c.refused...)
				if after, _ := os.ReadFile(filepath.Join(dir, identity.FileName)); string(after) != string(before) {
					t.Errorf("a refusal wrote:\n%s\nnow:\n%s", before, after)
				}
				return
			}
			check(t, err)
			r, ok := open(t, dir).Record()
			machine := c.now.Machine
			if machine == "" {
				machine = c.before.Machine
			}
			if !ok || r.UUID != c.now.UUID || r.Host != c.now.Host || r.Machine != machine || r.Created.IsZero() {
				t.Errorf("the file says %+v", r)
			}
		})
	}
}

func refused(t *testing.T, err error, parts ...string) {
	t.Helper()
	var e *identity.Error
	if !errors.As(err, &e) || !errors.Is(err, reportclient.ErrIdentity) {
		t.Fatalf("not refused: %v", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not said: %v", part, err)
		}
	}
}

// TestFirstStart: only the first start may make a new identity.
func TestFirstStart(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		found   string // a file in the state directory
		refused string
	}{
		"nothing is there":         {},
		"only a lock":              {found: "agent.lock"},
		"an empty journal":         {found: "reshapes/"},
		"the record of a node":     {found: "nodes/" + mine + ".json", refused: "not the first start"},
		"a reshape in the journal": {found: "reshapes/000001-" + mine + ".json", refused: "not the first start"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if c.found != "" {
				path := filepath.Join(dir, c.found)
				check(t, os.MkdirAll(filepath.Dir(path), 0o700))
				if strings.HasSuffix(c.found, "/") {
					check(t, os.MkdirAll(path, 0o700))
				} else {
					check(t, os.WriteFile(path, nil, 0o600))
				}
			}
			err := open(t, dir).CheckFirstStart("nodes")
			if c.refused == "" {
				check(t, err)
				return
			}
			refused(t, err, c.refused, filepath.Join(dir, c.found), "adopt --uuid")
		})
	}
	t.Run("its own file", func(t *testing.T) {
		dir := t.TempDir()
		testproc.Try(open(t, dir).Update(identity.Self{UUID: mine, Host: "cn1"})).Or(t)
		refused(t, open(t, dir).CheckFirstStart("nodes"), mine, "adopt --uuid "+mine)
	})
}

// guests is a driver that lists some, or cannot.
type guests struct {
	list []plugins.Guest
	err  error
}

func (g guests) Guests(context.Context, *providertree.Tree, string) ([]plugins.Guest, error) {
	return g.list, g.err
}

func TestAdmit(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	running := guests{list: []plugins.Guest{{UUID: "cccccccc-0000-4000-8000-000000000003", Name: "own"},
		{UUID: other, Name: "db1", ProjectID: "p"}, {UUID: mine, UserID: "u"}}}
	for name, c := range map[string]struct {
		known    bool // Placement knows the node
		reported plugins.Node
		asNew    string
		guests   plugins.GuestLister
		refused  []string
		err      error
	}{
		"Placement knows it":  {known: true, reported: cn1, guests: running},
		"new, without guests": {guests: guests{}},
		"new, with a person's own guests": {guests: guests{list: []plugins.Guest{{UUID: other,
			Name: "own"}}}},
		"new, of a driver that lists none":      {},
		"new, of a driver that cannot list any": {guests: guests{err: plugins.ErrUnsupported}},
		"new, with guests": {guests: running,
			refused: []string{"2 guests", "db1 (" + other + ")", "adopt --as-new --node cn1"}},
		"new, with guests, and that is meant":    {guests: running, asNew: "cn1"},
		"new, with guests, and another is meant": {guests: running, asNew: "cn2", refused: []string{"2 guests"}},
		"new, and whether there are guests is open": {guests: guests{err: plugins.ErrNotReady},
			err: plugins.ErrNotReady},
		"known once": {reported: cn1,
			refused: []string{"does not have node cn1 (" + mine + ")", "reported as cn1", "adopt --as-new --node cn1"}},
		"known once, under another uuid": {reported: plugins.Node{UUID: other, Name: "cn1"},
			refused: []string{"reported as " + other}},
		"known once, under another name": {reported: plugins.Node{UUID: mine, Name: "cn0"},
			refused: []string{"reported as cn0"}},
		"known once, and it is to be created again": {reported: cn1, asNew: "cn1", guests: running},
		"another was known": {reported: plugins.Node{UUID: other, Name: "cn2"},
			guests: guests{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir())
			testproc.Try(s.Update(identity.Self{UUID: mine, Host: "cn1"})).Or(t)
			if c.reported.UUID != "" {
				check(t, s.Reported(c.reported, "fake"))
			}
			if c.asNew != "" {
				check(t, s.AllowAsNew(c.asNew))
			}
			tree := &providertree.Tree{}
			check(t, tree.AddRoot(mine, "cn1"))
			if c.known {
				check(t, tree.SetGeneration(mine, 0))
			}
			err := s.CheckNewNode(t.Context(), cn1, tree, c.guests)
			switch {
			case c.refused != nil:
				refused(t, err, c.refused...)
			case c.err != nil:
				var e *identity.Error
				if !errors.Is(err, c.err) || errors.As(err, &e) {
					t.Errorf("%v, want %v and no refusal", err, c.err)
				}
			default:
				check(t, err)
			}
		})
	}
}

// TestAsNewIsForOnce: as soon as Placement has the node, it is known there again.
func TestAsNewIsForOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.AllowAsNew("cn1"); err == nil {
		t.Error("allowed on a host that was never started")
	}
	testproc.Try(s.Update(identity.Self{UUID: mine, Host: "cn1"})).Or(t)
	check(t, s.Reported(cn1, "fake"))
	check(t, s.AllowAsNew("cn1"))
	check(t, s.Reported(cn1, "fake"))
	unborn := &providertree.Tree{}
	check(t, unborn.AddRoot(mine, "cn1"))
	refused(t, open(t, dir).CheckNewNode(t.Context(), cn1, unborn, nil), "does not have node")
}

// TestReportedIsQuiet: a node that is noted costs no write.
func TestReportedIsQuiet(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.Reported(cn1, "fake"); err == nil {
		t.Error("noted before the identity was settled")
	}
	testproc.Try(s.Update(identity.Self{UUID: mine, Host: "cn1"})).Or(t)
	check(t, s.Reported(cn1, "fake"))
	check(t, os.Remove(filepath.Join(dir, identity.FileName)))
	check(t, s.Reported(cn1, "fake"))
	testproc.Try(s.Update(identity.Self{UUID: mine, Host: "cn1"})).Or(t)
	if _, err := os.Stat(filepath.Join(dir, identity.FileName)); !os.IsNotExist(err) {
		t.Errorf("it was written again: %v", err)
	}
}

// TestRenaming: what was begun is remembered, and its end makes the host who it is now.
func TestRenaming(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	s := open(t, dir)
	testproc.Try(s.Update(identity.Self{UUID: mine, Host: "cn1", Machine: machineA})).Or(t)
	check(t, s.Reported(cn1, "fake"))
	check(t, s.BeginRename(mine, "cn1", "cn2"))
	check(t, s.BeginRename(mine, "cn1", "cn2"))
	if err := open(t, dir).BeginRename(mine, "cn1", "cn3"); err == nil {
		t.Error("two renamings at once")
	}
	now := identity.Self{UUID: mine, Host: "cn2", Machine: machineB}
	check(t, open(t, dir).EndRename(now))
	s = open(t, dir)
	testproc.Try(s.Update(now)).Or(t)
	if r, _ := s.Record(); r.Nodes[mine].Name != "cn2" || r.Renaming != nil || r.Machine != machineB {
		t.Errorf("the record after a rename to cn2: got %+v", r)
	}
	// A machine that has lost its id is the one that it was.
	check(t, s.BeginRename(mine, "cn2", "cn3"))
	check(t, s.EndRename(identity.Self{UUID: mine, Host: "cn3"}))
	if r, _ := s.Record(); r.Host != "cn3" || r.Machine != machineB ||
		!maps.Equal(r.Former, map[string]string{"cn1": "cn3", "cn2": "cn3"}) {
		t.Errorf("the record after a rename to cn3 without a machine id: got %+v", r)
	}
	// A name that comes back is no former one.
	check(t, s.BeginRename(mine, "cn3", "cn1"))
	check(t, s.EndRename(identity.Self{UUID: mine, Host: "cn1"}))
	if r, _ := s.Record(); !maps.Equal(r.Former, map[string]string{"cn2": "cn1", "cn3": "cn1"}) {
		t.Errorf("the former names after a rename back to cn1: got %+v, want cn2 and cn3", r.Former)
	}
}

// TestRenamingBeforeTheFirstStart: the renamed node is this host then.
func TestRenamingBeforeTheFirstStart(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := open(t, t.TempDir())
	check(t, s.BeginRename(mine, "cn1", "cn2"))
	if r, _ := s.Record(); r.UUID != mine || r.Host != "cn2" {
		t.Errorf("the record after a rename before the first start: got %+v, want cn2", r)
	}
	s = open(t, t.TempDir())
	check(t, s.SetIdentity(identity.Self{UUID: other, Host: "host"}))
	check(t, s.BeginRename(mine, "cn1", "cn2"))
	if r, _ := s.Record(); r.UUID != other || r.Host != "host" {
		t.Errorf("another node of the host: %+v", r)
	}
}

// TestOwner: a node belongs to the driver that it was given to, until that one has reported it.
func TestOwner(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := open(t, t.TempDir())
	if err := s.Assign(mine, "a"); err == nil {
		t.Error("given on a host that was never started")
	}
	check(t, s.SetIdentity(identity.Self{UUID: mine, Host: "cn1"}))
	owner := func(want string) {
		t.Helper()
		if r, _ := s.Record(); r.Owner(mine) != want || r.Owner("x") != "" {
			t.Errorf("it belongs to %q, want %q", r.Owner(mine), want)
		}
	}
	owner("")
	check(t, s.Reported(cn1, "a"))
	owner("a")
	check(t, s.Assign(mine, "b"))
	check(t, s.Assign(other, "b"))
	owner("b")
	check(t, s.Reported(cn1, "b"))
	check(t, s.Assign(mine, "c"))
	check(t, s.ForgetNode(mine))
	owner("")
	if r, _ := s.Record(); r.Given[other] != "b" {
		t.Errorf("the record after a node was forgotten: got %+v, want the other one still given", r)
	}
}

// TestReportedNodesAreNamed: three at most.
func TestReportedNodesAreNamed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for n, want := range map[int]string{3: "cn1 (aaaaaaaa-0000-4000-8000-000000000001), cn2 " +
		"(aaaaaaaa-0000-4000-8000-000000000002), cn3 (aaaaaaaa-0000-4000-8000-000000000003)",
		5: "000000000003), 2 more"} {
		s := open(t, t.TempDir())
		check(t, s.SetIdentity(identity.Self{UUID: mine, Host: "cn1", Machine: machineA}))
		for i := range n {
			name := fmt.Sprint("cn", i+1)
			check(t, s.Reported(plugins.Node{UUID: "aaaaaaaa-0000-4000-8000-00000000000" + name[2:], Name: name},
				"fake"))
		}
		_, err := s.Check(identity.Self{UUID: mine, Host: "renamed", Machine: machineA})
		refused(t, err, want)
		if strings.Contains(err.Error(), " more") != (n > 3) {
			t.Error(err)
		}
	}
}

// TestAssume: what was reported under the former identity is not this host's any more.
func TestAssume(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := open(t, t.TempDir())
	check(t, s.SetIdentity(identity.Self{UUID: mine, Host: "cn1"}))
	check(t, s.Reported(cn1, "fake"))
	check(t, s.Reported(plugins.Node{UUID: other, Name: "cn2"}, "fake"))
	third := "aaaaaaaa-0000-4000-8000-000000000003"
	check(t, s.SetIdentity(identity.Self{UUID: third, Host: "cn1"}))
	r, _ := s.Record()
	if _, still := r.Nodes[mine]; still || r.Nodes[other].Name != "cn2" || r.UUID != third {
		t.Errorf("the record after Assume: got %+v, want cn2 and the new uuid", r)
	}
	check(t, s.ForgetNode(other))
	check(t, s.ForgetNode(other))
	if r, _ := s.Record(); len(r.Nodes) != 0 {
		t.Errorf("the record after the last node was forgotten: got %+v, want no nodes", r)
	}
	// Each difference is written, and nothing else: what the file loses meanwhile stays lost.
	dir := t.TempDir()
	s = open(t, dir)
	for i, self := range []identity.Self{
		{UUID: third, Host: "cn1", Machine: machineA},
		{UUID: third, Host: "cn1"}, {UUID: third, Host: "cn1", Machine: machineB}, {UUID: third, Host: "cn2"},
		{UUID: mine, Host: "cn2"}, {UUID: mine, Host: "cn2", Machine: machineB},
	} {
		_ = os.Remove(filepath.Join(dir, identity.FileName))
		check(t, s.SetIdentity(self))
		r, _ := s.Record()
		machine := machineB
		if i < 2 {
			machine = machineA
		}
		if r.UUID != self.UUID || r.Host != self.Host || r.Machine != machine {
			t.Errorf("the record after Assume %d: got %+v", i, r)
		}
		if _, err := os.Stat(filepath.Join(dir, identity.FileName)); (err == nil) != (i != 1 && i != 5) {
			t.Errorf("%d: written %v", i, err == nil)
		}
	}
}

// TestDamagedFile: what cannot be understood is refused, and left as it is.
func TestDamagedFile(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, content := range map[string]string{
		"empty":           "",
		"cut short":       `{"version": 1, "uuid": "aaaaaaaa-`,
		"a newer version": `{"version": 2, "uuid": "` + mine + `", "host": "cn1"}`,
		"no uuid":         `{"version": 1, "uuid": "cn1", "host": "cn1"}`,
		"a uuid as Placement does not write it": `{"version": 1, "uuid": "` +
			strings.ToUpper(mine) + `", "host": "cn1"}`,
		"no host": `{"version": 1, "uuid": "` + mine + `"}`,
		"a node without a uuid": `{"version": 1, "uuid": "` + mine +
			`", "host": "cn1", "nodes": {"cn2": {"name": "cn2"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), identity.FileName)
			check(t, os.WriteFile(path, []byte(content), 0o600))
			_, err := identity.Open(filepath.Dir(path))
			refused(t, err, path, "move the file away")
			if after, _ := os.ReadFile(path); string(after) != content {
				t.Errorf("it was changed to %q", after)
			}
		})
	}
}

// TestMachine: the hash is what `systemd-id128 machine-id
// --app-specific=5b0c1f0e8a2d4d399d6bf1f2a6c0b7e4` prints on a machine of this id.
func TestMachine(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		content, want string
		fails         bool
	}{
		"an id":         {content: machineA + "\n", want: "01b561b606a2482ab3d35cacb6fc5c22"},
		"empty":         {content: "\n"},
		"uninitialized": {content: "uninitialized\n"},
		"nonsense":      {content: "localhost\n", fails: true},
		"too short":     {content: "0123\n", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "machine-id")
			check(t, os.WriteFile(path, []byte(c.content), 0o444))
			got, err := identity.Machine(path)
			if (err != nil) != c.fails || got != c.want {
				t.Errorf("Machine: got %q, %v, want %q", got, err, c.want)
			}
		})
	}
	if got, err := identity.Machine(filepath.Join(t.TempDir(), "none")); got != "" || err != nil {
		t.Errorf("a machine without the file: %q, %v", got, err)
	}
}
