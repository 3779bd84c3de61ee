// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// watched is a driver that is watched: its changes come through the channel.
func (r *rig) watched() <-chan string {
	r.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	eventLog, ended := make(chan string, 1000), make(chan error, 1)
	go func() {
		ended <- r.Watch(ctx, func(node string) {
			select {
			case eventLog <- node:
			case <-ctx.Done(): // or Watch does not end
			}
		})
	}()
	r.Cleanup(func() {
		cancel()
		testproc.ErrorIs(r, <-ended, context.Canceled, "Watch: %v")
	})
	return eventLog
}

// until makes a pass after each event, and ends when the tree is as it should be and libvirt, which
// is later than the kernel, knows the same devices. Events come far sooner than a resync would.
func (r *rig) until(what string, eventLog <-chan string, tree *providertree.Tree, is func() bool) {
	r.Helper()
	limit := time.NewTimer(testproc.Patience)
	defer limit.Stop()
	for {
		select {
		case <-eventLog:
		case <-limit.C:
			r.Fatalf("%s: it is not seen; the tree has %v", what, names(tree))
		}
		if _, err := r.pass(tree); err != nil && !errors.Is(err, plugins.ErrNotReady) {
			r.Fatalf("%s: %v", what, err)
		}
		late := slices.ContainsFunc(r.deviceComparison.found, func(one machine.Discrepancy) bool {
			return disagreement.MatchString(fmt.Sprintf(`"warning":%q`, one.Key))
		})
		if is() && !late {
			return
		}
	}
}

func names(tree *providertree.Tree) (list []string) {
	for p := range tree.All() {
		list = append(list, p.Name)
	}
	return list
}

func drain(eventLog <-chan string) {
	for {
		select {
		case <-eventLog:
		default:
			return
		}
	}
}

// emulatorCache keeps what libvirt learnt of QEMU from one test to the next.
func emulatorCache(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("/usr/bin/qemu-system-x86_64"); err != nil {
		testproc.NotRun(t, "no QEMU (Debian package: qemu-system-x86)")
	}
	return filepath.Join(t.TempDir(), "cache")
}

// TestRealEventsTriggerAPass: what happens to the machine causes an event, and the next pass has it
// in the tree: GPUs and virtual functions that come and go, mediated devices, guests.
func TestRealEventsTriggerAPass(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	gpu := *h.Device("0000:82:00.0")
	s := testhost.SimForTest(t, h, testhost.SimOptions{Emulators: true, Cache: emulatorCache(t)})
	r := simulated(t, s, map[string]any{
		"numa": "nested", "enabled_mdev_types": []string{"nvidia-222"}, "pci_report_in_placement": true,
		"pci_device_spec": []any{map[string]any{"vendor_id": "15b3", "product_id": "1016",
			"resource_class": "CUSTOM_VF"}}, "call_timeout": "60s",
	})
	eventLog := r.watched()
	tree := newTree(t)
	eventually(t, func() error { _, err := r.pass(tree); return err })
	total := func(name, class string) int64 {
		p, _ := tree.ProviderByName(nodeName + "_" + name)
		return p.Inventories[class].Total
	}
	const gpuName, vfName = "pci_0000_82_00_0", "0000:06:00.0"
	if total(gpuName, "VGPU") != 16 || total(vfName, "CUSTOM_VF") != 4 {
		t.Fatalf("%v", names(tree))
	}
	must := func(err error) {
		t.Helper()
		testproc.Check(t, err)
	}
	drain(eventLog)
	must(s.Unplug(t.Context(), gpu.Address))
	r.until("a GPU is unplugged", eventLog, tree, func() bool { return total(gpuName, "VGPU") == 0 })
	drain(eventLog)
	must(s.Plug(t.Context(), gpu))
	r.until("a GPU is plugged in", eventLog, tree, func() bool { return total(gpuName, "VGPU") == 16 })
	drain(eventLog)
	must(s.Unplug(t.Context(), "0000:06:01.3"))
	r.until("a virtual function is unplugged", eventLog, tree, func() bool { return total(vfName, "CUSTOM_VF") == 3 })

	// A device that is made changes nothing but what is left; one of another type takes what there
	// was.
	drain(eventLog)
	const mdev = "c0ffee00-0000-4000-8000-000000000002"
	must(s.AddMdev(t.Context(), gpu.Address, "nvidia-231", mdev, 900))
	must(s.Tree().Write("sys/bus/pci/devices/"+
		gpu.Address+"/mdev_supported_types/nvidia-222/available_instances", "0\n"))
	r.until("a mediated device of another type is made",
		eventLog, tree, func() bool { return total(gpuName, "VGPU") == 0 })
	if !slices.ContainsFunc(r.Warnings(), func(w plugins.Warning) bool { return w.Name == "mdev-other-"+gpuName }) {
		t.Errorf("%+v", r.Warnings())
	}

	// A guest is defined, started, and gone.
	guest := testhost.Domain{Name: "watched", UUID: guestUUID, VCPUs: 1, MemoryMiB: 16, Metadata: novaInstance}
	knows := func() bool { _, known := r.domainCache.known[guestUUID]; return known }
	drain(eventLog)
	must(s.Define(t.Context(), guest.XML("qemu")))
	r.until("a guest is defined", eventLog, tree, knows)
	off := r.domainCache.known[guestUUID].key
	drain(eventLog)
	must(s.Boot(t.Context(), guest.Name))
	r.until("a guest is started", eventLog, tree,
		func() bool { return r.domainCache.known[guestUUID].key.State != off.State })
	guests, err := r.Guests(t.Context(), tree, nodeName)
	unknown := "it is not bound to NUMA cells, so it is unknown which cell provides its VCPU is. What to do: " +
		"nova-manage placement heal_allocations --instance " + guestUUID
	diff(t, "guests", []plugins.Guest{{UUID: guestUUID,
		Name: "watched", ProjectID: "9d3e4f5a", UserID: "2c5f0a1b", ResourcesUnknown: unknown}}, guests)
	must(err)
	drain(eventLog)
	must(s.Destroy(t.Context(), guest.Name))
	must(s.Undefine(t.Context(), guest.Name))
	r.until("a guest is gone", eventLog, tree, func() bool { return !knows() })
	if line := disagreement.FindString(r.log.String()); line != "" {
		t.Errorf("libvirt and the kernel were said to disagree on the way: %s\n%s", line, r.log)
	}
}

// TestRealDaemonRestartsOnAHostWithDevices: the daemon of a host with devices is restarted, hangs,
// dies and comes back. Whatever is asked meanwhile is answered with NotReady and a reason, the tree
// stands, and the driver finds back by itself. Its connections leave nothing behind: Shutdown would
// tell.
func TestRealDaemonRestartsOnAHostWithDevices(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := testhost.SimForTest(t, testhost.Sample(), testhost.SimOptions{})
	r := simulated(t, s, map[string]any{"numa": "nested",
		"enabled_mdev_types": []string{"nvidia-222"}, "call_timeout": "2s", "connect_timeout": "2s"})
	eventLog := r.watched()
	tree := newTree(t)
	eventually(t, func() error { _, err := r.pass(tree); return err })
	good := tree.Clone()
	notReady := func(what string, says ...string) {
		t.Helper()
		eventually(t, func() error {
			before := tree.Clone()
			_, err := r.pass(tree)
			switch {
			case err == nil:
				return errors.New(what + ": no error")
			case !errors.Is(err, plugins.ErrNotReady) || !tree.Equal(before):
				t.Fatalf("%s: %v, want NotReady, and the tree as it was", what, err)
			case !slices.ContainsFunc(says, func(s string) bool { return strings.Contains(err.Error(), s) }):
				return err
			case r.Health(t.Context()) == nil:
				return errors.New(what + ": yet healthy")
			}
			return nil
		})
	}
	back := func(what string) {
		t.Helper()
		r.until(what, eventLog, tree, func() bool { return r.Health(t.Context()) == nil })
		if !tree.Equal(good) {
			t.Errorf("%s: the tree is another one: %+v", what, providertree.Diff(good, tree))
		}
	}
	drain(eventLog)
	testproc.Check(t, s.Restart(t.Context()))
	back("restarted")
	testproc.Check(t, s.Freeze())
	notReady("frozen", "hangs")
	testproc.Check(t, s.Thaw())
	eventually(t, func() error { _, err := r.pass(tree); return err })
	if !tree.Equal(good) {
		t.Errorf("thawed: the tree is another one: %+v", providertree.Diff(good, tree))
	}
	drain(eventLog)
	testproc.Check(t, s.Kill(t.Context()))
	notReady("killed", "start the daemon")
	testproc.Try(r.Guests(t.Context(), tree, nodeName)).ErrorIs(t, plugins.ErrNotReady, "guests: %v")
	testproc.Check(t, s.Launch(t.Context()))
	back("launched")
}
