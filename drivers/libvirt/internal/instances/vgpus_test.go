// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// vgpuFunctions are those of the card.
var vgpuFunctions = []machine.Address{
	{Bus: 0x41, Function: 4}, {Bus: 0x41, Function: 5}, {Bus: 0x41, Function: 6},
}

// newVGPURig has a card of 12 GiB, which makes two vGPUs of nvidia-1151 or one of nvidia-1153.
func newVGPURig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, Config{})
	r.card = testhost.VGPUCard{FramebufferMiB: 12 << 10, Types: []testhost.VGPUType{
		{ID: 1151, Name: "NVIDIA L40S-6Q", FramebufferMiB: 6 << 10, Fit: 2},
		{ID: 1153, Name: "NVIDIA L40S-12Q", FramebufferMiB: 12 << 10, Fit: 1},
	}}
	r.used.Chroot = t.TempDir()
	r.SetSetup(&r.used)
	for _, f := range vgpuFunctions {
		testproc.Check(t, os.MkdirAll(filepath.Dir(r.vgpuPath(f)), 0o755))
	}
	r.showVGPUs()
	c := &conn{world: r.world, write: true}
	r.Manager.write = func(_ *os.Root, name, text string) error {
		return c.change("vgpu "+text, func() error {
			if text == noVGPU && r.busy > 0 {
				r.busy--
				return syscall.EBUSY
			}
			function := filepath.Base(strings.TrimSuffix(name, "/nvidia/current_vgpu_type"))
			if err := r.card.Set(function, testproc.Try(strconv.Atoi(text)).Or(t)); err != nil {
				return err
			}
			r.showVGPUs()
			return nil
		})
	}
	return r
}

func (r *rig) vgpuPath(f machine.Address) string { return filepath.Join(r.used.Chroot, vgpuFile(f)) }

// showVGPUs writes the files of the functions.
func (r *rig) showVGPUs() {
	for _, f := range vgpuFunctions {
		testproc.Check(r.t, os.WriteFile(r.vgpuPath(f), fmt.Appendf(nil, "%d\n", r.card.Current[f.String()]), 0o600))
	}
}

// vgpuRequest is a guest with a vGPU of the card.
func vgpuRequest(n int) plugins.InstanceSpec {
	spec := request(n)
	delete(spec.Allocations, gpuUUID)
	spec.Allocations[cardUUID] = map[string]int64{"VGPU": 1}
	return spec
}

// TestAVGPUIsMadeAndRemoved: a vGPU is made on a function before its guest starts, and removed
// after it has gone; the guest gets the function with the driver that it has.
func TestAVGPUIsMadeAndRemoved(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newVGPURig(t)
		r.mustSpawn(vgpuRequest(1))
		d := r.defined(1)
		want := []domain.VGPU{{Function: vgpuFunctions[0], Parent: cardName, Type: "nvidia-1151", Made: true}}
		diff(t, "its vGPUs", want, d.VGPUs)
		diff(t, "its other PCI devices", []machine.PassedDevice(nil), d.PCI)
		diff(t, "steps", []string{"define", "vgpu 1151", "start"}, r.writes)
		if !strings.Contains(r.domains[id(1)].XML, `<hostdev mode="subsystem" type="pci" managed="no">`) {
			t.Errorf("the function is not given with its driver:\n%s", r.domains[id(1)].XML)
		}
		r.mustSpawn(vgpuRequest(2))
		diff(t, "the second", vgpuFunctions[1], r.defined(2).VGPUs[0].Function)
		_, err := r.spawn(vgpuRequest(3))
		if !isFault(err) || !strings.Contains(err.Error(), "1 more than are free") {
			t.Errorf("a third one: %v", err)
		}
		r.busy = 3
		testproc.NoError(t, r.Destroy(t.Context(), node, id(1)))
		diff(t, "after the first went", map[string]int{"0000:41:00.5": 1151}, r.card.Current)
		r.mustSpawn(vgpuRequest(3))
		diff(t, "the third", vgpuFunctions[0], r.defined(3).VGPUs[0].Function)
		for n := 2; n <= 3; n++ {
			testproc.NoError(t, r.Destroy(t.Context(), node, id(n)))
		}
		diff(t, "in the end", []string(nil), r.left())
		diff(t, "the card in the end", map[string]int{}, r.card.Current)
	})
}

// TestAVGPUOfOthers: one that an operator made is used and stays, one that came in between is not
// touched, and of another type it is not used.
func TestAVGPUOfOthers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newVGPURig(t)
		r.card.Current = map[string]int{"0000:41:00.6": 1151}
		r.showVGPUs()
		r.mustSpawn(vgpuRequest(1))
		if v := r.defined(1).VGPUs; len(v) != 1 || v[0].Made || v[0].Function != vgpuFunctions[2] {
			t.Errorf("%+v", v)
		}
		testproc.NoError(t, r.Destroy(t.Context(), node, id(1)))
		diff(t, "the card", map[string]int{"0000:41:00.6": 1151}, r.card.Current)

		r.card.Current = map[string]int{"0000:41:00.4": 1153}
		r.showVGPUs()
		_, err := r.spawn(vgpuRequest(2))
		if !isFault(err) {
			t.Errorf("beside another size: %v", err)
		}
		r.card.Current = nil
		r.showVGPUs()
		r.before = func() { // after the decision
			r.card.Current = map[string]int{"0000:41:00.4": 1153}
			r.showVGPUs()
			r.before = nil
		}
		_, err = r.spawn(vgpuRequest(2))
		if !isFault(err) || !strings.Contains(err.Error(), "another vGPU than its nvidia-1151") {
			t.Errorf("with one that came in between: %v", err)
		}
		diff(t, "left", []string(nil), r.left())
		diff(t, "what came in between", map[string]int{"0000:41:00.4": 1153}, r.card.Current)
	})
}

// TestAVGPUAfterARestartOfTheHost: the kernel forgets vGPUs; the guest's is made again.
func TestAVGPUAfterARestartOfTheHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newVGPURig(t)
		r.mustSpawn(vgpuRequest(1))
		r.domains[id(1)].off(offShutdown)
		r.card.Current = nil
		r.showVGPUs()
		testproc.Try(r.SetPower(t.Context(), node, id(1), plugins.PowerRunning, false)).Or(t)
		diff(t, "the card", map[string]int{"0000:41:00.4": 1151}, r.card.Current)
	})
}

// TestAVGPUWhoseDomainWasUndefined: the directory of the instance says which vGPU was made for it.
func TestAVGPUWhoseDomainWasUndefined(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		for _, again := range []bool{false, true} {
			r := newVGPURig(t)
			r.mustSpawn(vgpuRequest(1))
			delete(r.domains, id(1))
			if again {
				r.mustSpawn(vgpuRequest(1))
			}
			testproc.NoError(t, r.Destroy(t.Context(), node, id(1)))
			diff(t, "left", []string(nil), r.left())
			diff(t, "the card", map[string]int{}, r.card.Current)
		}
	})
}

// TestAVGPUAtAnyStep: whatever fails, and however, at each step of making and removing a vGPU:
// after Destroy no type is left behind, and what a guest has stays.
func TestAVGPUAtAnyStep(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const (
		spawns  = 3 // steps of a spawn
		steps   = 6 // of a spawn and a destroy
		retried = 5 // removing a vGPU is tried again
	)
	for step := 1; step <= steps; step++ {
		for _, how := range []failMode{refuses, breaks, breaksAfter} {
			for _, next := range []string{"spawn", "destroy"} {
				t.Run(fmt.Sprintf("%d/%d/%s", step, how, next), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						r := newVGPURig(t)
						r.mustSpawn(vgpuRequest(9))
						r.fail, r.how = len(r.writes)+step, how
						_, err := r.spawn(vgpuRequest(1))
						if err == nil {
							err = r.Destroy(t.Context(), node, id(1))
						}
						if err == nil && step != retried {
							t.Error("nothing failed")
						}
						r.Manager, r.fail = r.again(), 0
						time.Sleep(time.Minute) // the connection comes again
						if next == "spawn" && step <= spawns {
							r.mustSpawn(vgpuRequest(1))
							diff(t, "the card", map[string]int{"0000:41:00.4": 1151, "0000:41:00.5": 1151},
								r.card.Current)
						}
						testproc.NoError(t, r.Destroy(t.Context(), node, id(1)))
						diff(t, "the card after Destroy", map[string]int{"0000:41:00.4": 1151}, r.card.Current)
						testproc.NoError(t, r.Destroy(t.Context(), node, id(9)))
						diff(t, "left", []string(nil), r.left())
						diff(t, "the card in the end", map[string]int{}, r.card.Current)
					})
				})
			}
		}
	}
}

// again is the manager of a process that was started again.
func (r *rig) again() *Manager {
	m := New(r.eventLog)
	m.write = r.Manager.write
	m.SetSetup(&r.used)
	return m
}
