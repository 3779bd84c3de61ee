// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestStandardNames: opening adds the standard names that are missing, each class under its own
// number, and takes none away that a newer list may have brought.
func TestStandardNames(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	store := &placementtest.MemoryStore{State: ledger.State{
		Classes: []ledger.NamedRow{{ID: 1, Name: "MEMORY_MB"}, {ID: 700, Name: "OF_A_NEWER_LIST"},
			{ID: 10000, Name: "CUSTOM_A"}},
		Traits: []ledger.NamedRow{{ID: 1, Name: "HW_OF_A_NEWER_LIST"},
			{ID: 9, Name: "COMPUTE_NODE"}, {ID: 10, Name: "CUSTOM_T"}},
	}}
	s := open(t, store).Current()
	for id, name := range ledger.StandardClasses() {
		if c, ok := s.Class(name); !ok || c.ID != int64(id) {
			t.Errorf("class %s is %+v, want number %d", name, c, id)
		}
	}
	for _, name := range ledger.StandardTraits() {
		if _, ok := s.Trait(name); !ok {
			t.Errorf("trait %s is missing", name)
		}
	}
	for _, name := range []string{"OF_A_NEWER_LIST", "CUSTOM_A"} {
		if _, ok := s.Class(name); !ok {
			t.Errorf("class %s is gone", name)
		}
	}
	for name, id := range map[string]int64{"HW_OF_A_NEWER_LIST": 1, "COMPUTE_NODE": 9, "CUSTOM_T": 10} {
		if trait, ok := s.Trait(name); !ok || trait.ID != id {
			t.Errorf("trait %s is %+v, want number %d", name, trait, id)
		}
	}
	added := len(ledger.StandardClasses()) - 1 + len(ledger.StandardTraits()) - 1
	if got := store.Commits; len(got) != 1 || got[0] != added {
		t.Errorf("commits of %v changes, want one of %d", got, added)
	}
}

// TestStandardNumberTaken: a database where something else has the number of a standard class is
// refused with both names.
func TestStandardNumberTaken(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	store := &placementtest.MemoryStore{State: ledger.State{Classes: []ledger.NamedRow{{ID: 0, Name: "SOMETHING"}}}}
	_, err := transactor.Open(ctx, store, transactor.Options{})
	if !errors.Is(err, ledger.ErrBadState) || !strings.Contains(err.Error(), "VCPU") ||
		!strings.Contains(err.Error(), "SOMETHING") {
		t.Errorf("Open: %v", err)
	}
}

// TestListsSayTheirVersion: the data files name the releases that the constants name.
func TestListsSayTheirVersion(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for file, want := range map[string]string{
		"data/resource_classes.txt": "os-resource-classes " + ledger.OSResourceClassesVersion,
		"data/traits.txt":           "os-traits " + ledger.OSTraitsVersion,
	} {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(strings.SplitN(string(text), "\n", 2)[0], want+":") {
			t.Errorf("%s does not begin with %s: %v", file, want, err)
		}
	}
}
