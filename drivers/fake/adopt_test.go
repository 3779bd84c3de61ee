// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestMachinesOfAFormerRelease were in a directory that all drivers shared. Each driver takes those
// of its own nodes along, and no others; an interrupted one is completed; what cannot be read keeps
// the driver from saying that there is no such guest.
func TestMachinesOfAFormerRelease(t *testing.T) {
	state := t.TempDir()
	shared, own := filepath.Join(state, machinesDir), filepath.Join(state, "drivers", "fake")
	check := func(err error) {
		t.Helper()
		testproc.Check(t, err)
	}
	check(os.MkdirAll(own, 0o700))
	// made by a driver that had the shared directory
	d := process(t, managed("flat", "{}"), state)
	tree := reported(t, managed("flat", "{}"))
	testproc.Try(d.Spawn(context.Background(), "cn1", wanted(map[string]int64{"VCPU": 1}), tree)).Or(t)
	foreign := filepath.Join(shared, guestB+".json")
	write(t, foreign, `{"uuid":"`+guestB+`","node":"elsewhere"}`)
	for range 2 { // and again
		if got := instances(t, process(t, managed("flat", "{}"), own)); len(got) != 1 || got[0].UUID != guestA {
			t.Errorf("instances: %+v", got)
		}
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("another driver's machine: %v", err)
	}
	write(t, foreign, "{")
	err := New().Configure(context.Background(), json.RawMessage(managed("flat", "{}")),
		plugins.HostInfo{Name: "this-host", StateDir: own})
	testproc.ErrorHas(t, err, foreign, "half a file: %v")
	check(os.Remove(foreign))
	process(t, managed("flat", "{}"), own)
	if _, err := os.Stat(shared); !os.IsNotExist(err) {
		t.Errorf("the shared directory is empty, and still there: %v", err)
	}
	if left, err := os.ReadDir(state); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}
