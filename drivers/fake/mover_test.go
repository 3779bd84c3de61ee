// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// filesOf reads the files of an instance on another host.
type filesOf struct {
	*Driver
	reads int
}

func (f *filesOf) ReadFile(ctx context.Context, name string, offset int64, each plugins.ChunkFunc) error {
	f.reads++
	return f.Driver.ReadFile(ctx, "cn1", guestA, name, offset, each)
}

func disk(t *testing.T, d *Driver) string {
	t.Helper()
	text := ""
	testproc.Check(t, d.ReadFile(t.Context(), "cn1", guestA, diskFile, 0,
		func(_ int64, data []byte) error { text += string(data); return nil }))
	return text
}

// TestInstancesMove between two hosts, whose nodes have the same name where that makes no
// difference: there and back, with shared storage and without.
func TestInstancesMove(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprint("shared ", shared), func(t *testing.T) {
			ctx := t.Context()
			storage := `{}`
			if shared {
				storage = fmt.Sprintf(`{"storage":%q}`, t.TempDir())
			}
			raw := managed("flat", storage)
			from, to := process(t, raw, t.TempDir()), process(t, raw, t.TempDir())
			tree, spec := reported(t, raw), wanted(map[string]int64{"VCPU": 2})
			testproc.Try(from.Spawn(ctx, "cn1", spec, tree)).Or(t)
			source := &filesOf{Driver: from}
			var fault *plugins.InstanceFault
			if err := source.ReadFile(ctx, diskFile, 0, nil); !errors.As(err, &fault) {
				t.Errorf("reading the disk of a machine that runs: %v", err)
			}
			offer := testproc.Try(from.Depart(ctx, "cn1", guestA)).Or(t)
			before := disk(t, from)
			source.reads = 0
			for range 2 {
				is, err := to.Arrive(ctx, "cn1", spec, tree, plugins.Arrival{Node: "cn1", Offer: offer, Files: source})
				if err != nil || is.Power != plugins.PowerShutdown || is.Name != "web" {
					t.Fatalf("arrived: %+v, %v", is, err)
				}
			}
			if got := disk(t, to); got != before {
				t.Errorf("arrived with %q, departed with %q", got, before)
			}
			if want := map[bool]int{false: 1, true: 0}[shared]; source.reads != want {
				t.Errorf("%d files were read, want %d", source.reads, want)
			}
		})
	}
}

func TestSharedDisksStayWhileAnotherHostHasThem(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	raw := managed("flat", fmt.Sprintf(`{"storage":%q}`, dir))
	s := storage(dir)
	for _, step := range []struct {
		node string
		do   func(node string) error
		left bool
	}{
		{"cn1", func(n string) error { return s.put(guestA, n, "made here") }, true},
		{"cn2", func(n string) error { return s.put(guestA, n, "made elsewhere") }, true},
		{"cn1", func(n string) error { return s.release(guestA, n) }, true},
		{"cn1", func(n string) error { return s.release(guestA, n) }, true},
		{"cn2", func(n string) error { return s.release(guestA, n) }, false},
		{"cn2", func(n string) error { return s.release(guestA, n) }, false},
	} {
		testproc.Check(t, step.do(step.node))
		text, err := os.ReadFile(s.disk(guestA))
		if (err == nil) != step.left || step.left && string(text) != "made here" {
			t.Fatalf("after a step of %s: %q, %v", step.node, text, err)
		}
	}
	// An evacuation: the lost host's disk is used, and stays when that host is back and leaves.
	testproc.Check(t, s.put(guestA, "cn7", "made on the lost host"))
	d := process(t, raw, t.TempDir())
	testproc.Try(d.Arrive(ctx, "cn1", wanted(map[string]int64{"VCPU": 2}), reported(t, raw),
		plugins.Arrival{Node: "cn7", Evacuation: true})).Or(t)
	testproc.Check(t, s.release(guestA, "cn7"))
	testproc.Equal(t, disk(t, d), "made on the lost host", "got %q")
	nothingLeft := func() {
		t.Helper()
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
	testproc.Check(t, d.Leave(ctx, "cn1", guestA))
	nothingLeft()
	// What is destroyed is gone, though a host that was lost still has its claim.
	testproc.Try(d.Spawn(ctx, "cn1", wanted(map[string]int64{"VCPU": 2}), reported(t, raw))).Or(t)
	testproc.Check(t, errors.Join(s.put(guestA, "cn7", ""), d.Destroy(ctx, "cn1", guestA)))
	nothingLeft()
}

func TestNothingIsLeftOfWhatCannotArrive(t *testing.T) {
	ctx, raw := t.Context(), managed("flat", `{"max_disk":5}`)
	from, to := process(t, managed("flat", "{}"), t.TempDir()), process(t, raw, t.TempDir())
	tree, spec := reported(t, raw), wanted(map[string]int64{"VCPU": 2})
	testproc.Try(from.Spawn(ctx, "cn1", spec, tree)).Or(t)
	offer := testproc.Try(from.Depart(ctx, "cn1", guestA)).Or(t)
	var fault *plugins.InstanceFault
	for _, arrival := range []plugins.Arrival{
		{Node: "cn1", Offer: offer, Files: &filesOf{Driver: from}},
		{Node: "cn1", Offer: "of another driver", Files: &filesOf{Driver: from}},
		{Node: "cn1", Evacuation: true},
	} {
		if _, err := to.Arrive(ctx, "cn1", spec, tree, arrival); !errors.As(err, &fault) {
			t.Errorf("%+v: %v", arrival, err)
		}
		if left := instances(t, to); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	if got := instances(t, from); len(got) != 1 || got[0].Power != plugins.PowerShutdown {
		t.Errorf("the source has %v", got)
	}
	_, gone := to.Depart(ctx, "cn1", guestA)
	testproc.ErrorIs(t, gone, plugins.ErrInstanceNotFound, "Depart of what is not there: %v")
}

// TestRestore: a machine whose file was removed is there again over its disk in the storage, off,
// as often as it is asked for. Without its disk it is not made.
func TestRestore(t *testing.T) {
	dir, storage := t.TempDir(), t.TempDir()
	raw := managed("flat", `{"storage":"`+storage+`"}`)
	d, ctx, spec := process(t, raw, dir), context.Background(), wanted(map[string]int64{"VCPU": 2})
	tree := reported(t, raw)
	var fault *plugins.InstanceFault
	if _, err := d.Restore(ctx, "cn1", spec, tree); !errors.As(err, &fault) ||
		fault.Reason != "its disk is not on its host" || len(instances(t, d)) != 0 {
		t.Errorf("what never was: %v", err)
	}
	testproc.Try(d.Spawn(ctx, "cn1", spec, tree)).Or(t)
	h := d.hypervisor()
	before, _, err := h.find(guestA)
	testproc.Check(t, err)
	testproc.Check(t, h.remove(guestA))
	for range 2 {
		is, err := d.Restore(ctx, "cn1", spec, tree)
		if err != nil || is.UUID != guestA || is.Name != "web" || is.Power != plugins.PowerShutdown {
			t.Fatalf("%+v, %v", is, err)
		}
	}
	after, _, err := h.find(guestA)
	if err != nil || after.Disk != before.Disk {
		t.Errorf("its disk is %q, was %q: %v", after.Disk, before.Disk, err)
	}
	testproc.Check(t, d.Destroy(ctx, "cn1", guestA))
	if _, err := d.Restore(ctx, "cn1", spec, tree); !errors.As(err, &fault) || len(instances(t, d)) != 0 {
		t.Errorf("what was destroyed: %v", err)
	}
}
