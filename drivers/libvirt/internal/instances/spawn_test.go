// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func diff(t *testing.T, what string, want, got any) {
	t.Helper()
	testproc.Samef(t, cmp.Diff(want, got), "%s", what)
}

func isFault(err error) bool {
	var fault *plugins.InstanceFault
	return errors.As(err, &fault)
}

// TestAnInstanceIsMadeAndRemoved: what Placement granted becomes pins, memory, devices and disks;
// and all of it goes again.
func TestAnInstanceIsMadeAndRemoved(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.mustSpawn(request(1))
		d := r.defined(1)
		diff(t, "pins", [][]int{{2}, {3}}, d.Pins)
		diff(t, "memory", []int{0}, d.Memory.Nodes)
		diff(t, "steps", []string{"define", "make device", "start"}, r.writes)
		if len(d.Mark.Mdevs) != 1 || !d.Mark.Mdevs[0].Made || d.Mark.Node != node ||
			d.Mark.ProjectID != "p" || d.Type != "kvm" {
			t.Errorf("%+v", d.Mark)
		}
		var files []string
		entries := testproc.Try(os.ReadDir(filepath.Join(r.dir, domain.Name(id(1))))).Or(t)
		for _, e := range entries {
			info := testproc.Try(e.Info()).Or(t)
			files = append(files, fmt.Sprintf("%s %d", e.Name(), info.Size()))
		}
		diff(t, "files", []string{filepath.Base(directory{}.claimOf(node)) + " 4", "disk 1073741824",
			"disk.seed 1048576", "disk.swap 67108864", "started 0"}, files)

		second := request(2)
		second.Allocations[nicUUID] = map[string]int64{"CUSTOM_NIC": 1}
		r.mustSpawn(second)
		d = r.defined(2)
		diff(t, "pins of the second", [][]int{{4}, {5}}, d.Pins)
		diff(t, "its PCI devices", []machine.PassedDevice{{Address: machine.Address{Bus: 6}, Managed: true}}, d.PCI)
		if got := len(r.left()); got != 6 {
			t.Errorf("%v", r.left())
		}
		for range 2 {
			for _, n := range []int{1, 2} {
				testproc.NoError(t, r.Destroy(t.Context(), node, id(n)))
			}
		}
		diff(t, "in the end", []string(nil), r.left())
	})
}

// TestADeviceThatWasThereStays: a device that was there before is used, and stays.
func TestADeviceThatWasThereStays(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		const name = "mdev_00000000_0000_4000_8000_00000000abcd_0000_82_00_0"
		r.devices[name] = true
		r.mustSpawn(request(1))
		if m := r.defined(1).Mark.Mdevs; len(m) != 1 || m[0].Made {
			t.Errorf("%+v", m)
		}
		testproc.NoError(t, r.Destroy(t.Context(), node, id(1)))
		diff(t, "left", []string{"device " + name}, r.left())
	})
}

// TestASpawnThatFailsAtAnyStep: whatever call fails, and however: either nothing is left, or the
// next Spawn goes on, or Destroy removes all.
func TestASpawnThatFailsAtAnyStep(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const steps = 3
	for step := 1; step <= steps; step++ {
		for _, how := range []failMode{refuses, breaks, breaksAfter} {
			for _, next := range []string{"spawn", "destroy"} {
				t.Run(fmt.Sprintf("%d/%d/%s", step, how, next), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						r := newRig(t, Config{})
						r.fail, r.how = step, how
						_, err := r.spawn(request(1))
						if how == refuses {
							if !isFault(err) {
								t.Errorf("%v, want a fault", err)
							}
							diff(t, "left after a fault", []string(nil), r.left())
						} else if err == nil || isFault(err) || errors.Is(err, plugins.ErrNotReady) {
							t.Errorf("%v, want an error that is no fault: the result is unknown", err)
						}
						time.Sleep(time.Minute) // the connection comes again
						if next == "spawn" {
							r.mustSpawn(request(1))
							r.mustSpawn(request(1))
							if r.started != 1 || len(r.domains) != 1 || len(r.devices) != 1 {
								t.Errorf("%d starts, %v", r.started, r.left())
							}
						}
						testproc.NoError(t, r.Destroy(t.Context(), node, id(1)))
						diff(t, "in the end", []string(nil), r.left())
					})
				})
			}
		}
	}
}

// TestFailedStartWithKVMHasAHint: the hint that KVM may not work is given only for a guest that was
// to run on KVM and could not be started.
func TestFailedStartWithKVMHasAHint(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for virt, hinted := range map[string]bool{"": true, "auto": true, "kvm": true, "qemu": false} {
		t.Run(virt, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Config{VirtType: virt})
				r.fail, r.how = 3, refuses // the start
				var log strings.Builder
				_, err := r.Spawn(zerolog.New(&log).WithContext(t.Context()), node, request(1), nil)
				var fault *plugins.InstanceFault
				if !errors.As(err, &fault) || fault.Reason != "the hypervisor could not start it" {
					t.Errorf("its owner gets %v", err)
				}
				if strings.Count(log.String(), "Could not create an instance") != 1 ||
					strings.Contains(log.String(), `virt_type = \"qemu\"`) != hinted {
					t.Errorf("the log is %s", log.String())
				}
			})
		})
	}
}

// TestASpawnThatIsCancelledAtAnyStep: the caller goes away in the middle of a call.
func TestASpawnThatIsCancelledAtAnyStep(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for step := range 3 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, Config{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			n := 0
			r.before = func() {
				if n++; n == step+1 {
					cancel()
					time.Sleep(time.Second) // the caller is quicker
				}
			}
			if _, err := r.Spawn(ctx, node, request(1), nil); err == nil || isFault(err) ||
				errors.Is(err, plugins.ErrNotReady) {
				t.Errorf("step %d: %v", step, err)
			}
			r.mustSpawn(request(1))
			if r.started != 1 || len(r.domains) != 1 || len(r.devices) != 1 {
				t.Errorf("step %d: %d starts, %v", step, r.started, r.left())
			}
			testproc.NoError(t, r.Destroy(t.Context(), node, id(1)))
			diff(t, "in the end", []string(nil), r.left())
		})
	}
}

func TestADestroyThatFailsAtAnyStep(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for step := 1; step <= 3; step++ {
		for _, how := range []failMode{refuses, breaks, breaksAfter} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Config{})
				r.mustSpawn(request(1))
				r.fail, r.how = len(r.writes)+step, how
				if err := r.Destroy(t.Context(), node, id(1)); err == nil ||
					errors.Is(err, plugins.ErrNotReady) || isFault(err) {
					t.Errorf("step %d, %d: %v", step, how, err)
				}
				time.Sleep(time.Minute)
				testproc.NoError(t, r.Destroy(t.Context(), node, id(1)))
				diff(t, fmt.Sprintf("step %d, %d: left", step, how), []string(nil), r.left())
			})
		}
	}
}

// TestSpawnAndDestroyContinueAfterACrash: a process ended between any two steps: what it left is
// made whole, or removed.
func TestSpawnAndDestroyContinueAfterACrash(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, crash := range map[string]func(t *testing.T, r *rig){
		"a directory without a domain": func(_ *testing.T, r *rig) {
			delete(r.domains, id(1))
			r.devices = map[string]bool{}
		},
		"a domain without anything": func(t *testing.T, r *rig) {
			r.domains[id(1)].off(0)
			r.devices = map[string]bool{}
			testproc.Check(t, os.RemoveAll(filepath.Join(r.dir, domain.Name(id(1)))))
		},
		"half a disk": func(t *testing.T, r *rig) {
			r.domains[id(1)].off(0)
			dir := filepath.Join(r.dir, domain.Name(id(1)))
			for _, name := range []string{rootDisk, startedNote} {
				testproc.Check(t, os.Remove(filepath.Join(dir, name)))
			}
			r.write(filepath.Join(dir, "disk.part"), "half")
		},
		"an unused device": func(t *testing.T, r *rig) {
			r.domains[id(1)].off(0)
			testproc.Check(t, os.Remove(filepath.Join(r.dir, domain.Name(id(1)), startedNote)))
		},
		"a guest that runs, and no note of it": func(t *testing.T, r *rig) {
			testproc.Check(t, os.Remove(filepath.Join(r.dir, domain.Name(id(1)), startedNote)))
			r.started = 0
			r.mustSpawn(request(1))
			if r.started != 0 {
				t.Error("it was started once more")
			}
		},
	} {
		for _, next := range []string{"spawn", "destroy"} {
			t.Run(name+"/"+next, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, Config{})
					r.mustSpawn(request(1))
					crash(t, r)
					if next == "spawn" {
						r.mustSpawn(request(1))
						info, err := os.Stat(filepath.Join(r.dir, domain.Name(id(1)), rootDisk))
						if err != nil || info.Size() != 1<<30 {
							t.Errorf("%+v, %v", info, err)
						}
						if len(r.domains) != 1 || len(r.devices) != 1 {
							t.Errorf("%v", r.left())
						}
					}
					testproc.NoError(t, r.Destroy(t.Context(), node, id(1)))
					diff(t, "in the end", []string(nil), r.left())
				})
			})
		}
	}
}

// TestSpawnWhileItStarts: an earlier call's start is still under way: it is waited for, by libvirt.
// One that takes too long leaves everything as it is.
func TestSpawnWhileItStarts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		for _, noted := range []bool{false, true} {
			r := newRig(t, Config{})
			r.mustSpawn(request(1))
			b := r.domains[id(1)]
			b.State, b.Reason = hypervisor.Paused, pausedStarting
			want := plugins.PowerRunning
			if !noted {
				testproc.Check(t, os.Remove(filepath.Join(r.dir, domain.Name(id(1)), startedNote)))
				want = plugins.PowerNoState // the agent keeps a guest that runs when it gives up
			}
			if list, err := r.Instances(t.Context(), node); err != nil || len(list) != 1 || list[0].Power != want {
				t.Errorf("noted: %v: %+v, %v", noted, list, err)
			}
			if !noted {
				before := r.left()
				r.stuck = true
				if _, err := r.spawn(request(1)); err == nil || isFault(err) {
					t.Errorf("%v", err)
				}
				diff(t, "left", before, r.left())
				r.stuck = false
				r.mustSpawn(request(1))
			} else if is, err := r.SetPower(t.Context(), node, id(1), plugins.PowerRunning, false); err != nil ||
				is.Power != plugins.PowerRunning {
				t.Errorf("%+v, %v", is, err)
			}
			testproc.Equal(t, r.started, 1, "%d starts")
		}
	})
}

// TestWhatIsOnADisk: a disk that is complete is not made again; that of a former instance of the
// same uuid is not given to the next.
func TestWhatIsOnADisk(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, gone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, Config{})
			r.mustSpawn(request(1))
			dir := filepath.Join(r.dir, domain.Name(id(1)))
			r.write(filepath.Join(dir, rootDisk), "data")
			testproc.Check(t, os.Remove(filepath.Join(dir, startedNote)))
			r.domains[id(1)].off(0)
			if gone {
				delete(r.domains, id(1))
			}
			r.mustSpawn(request(1))
			if kept := blocksOf(t, filepath.Join(dir, rootDisk)) == "0: data\n"; kept == gone {
				t.Errorf("the domain was gone: %v, the data is there: %v", gone, kept)
			}
		})
	}
}

// TestInstancesOfAnotherNode: instances of a node with a former name do not belong to the present
// node, and stay.
func TestInstancesOfAnotherNode(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.mustSpawn(request(1))
		before := r.left()
		r.setup.Node = func(context.Context) (string, error) { return "cn2", nil }
		if _, err := r.spawn(request(1)); err == nil || isFault(err) {
			t.Errorf("a node that is not there: %v", err)
		}
		if list, err := r.Instances(t.Context(), "cn2"); err != nil || len(list) > 0 {
			t.Errorf("%+v, %v", list, err)
		}
		if _, err := r.Spawn(t.Context(), "cn2", request(1), nil); !isFault(err) {
			t.Errorf("%v, want a fault", err)
		}
		if _, err := r.SetPower(t.Context(), "cn2", id(1),
			plugins.PowerShutdown, true); !errors.Is(err, plugins.ErrInstanceNotFound) {
			t.Errorf("%v", err)
		}
		testproc.NoError(t, r.Destroy(t.Context(), "cn2", id(1)))
		diff(t, "left", before, r.left())
	})
}

// TestSpawnDoesNotRestartAnInstanceThatRan: what ran and is off stays off, also for a manager that
// has just come up.
func TestSpawnDoesNotRestartAnInstanceThatRan(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, reason := range []int{0, offShutdown, offDestroyed, offCrashed} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, Config{})
			r.mustSpawn(request(1))
			r.domains[id(1)].off(reason)
			if reason != 0 { // libvirt still knows
				testproc.Check(t, os.Remove(filepath.Join(r.dir, domain.Name(id(1)), startedNote)))
			}
			for range 2 {
				is, err := r.spawn(request(1))
				if err != nil || is.Power == plugins.PowerRunning || r.started != 1 {
					t.Errorf("%+v, %v", is, err)
				}
				r.domains[id(1)].off(0) // libvirt's daemon is started again
			}
		})
	}
}

// TestUnmanagedGuestsAreNotTouched: domains without our mark, or with that of another node, are
// left alone whatever is asked.
func TestUnmanagedGuestsAreNotTouched(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.unmanaged(1)
		_, spawned := r.spawn(request(1))
		_, on := r.SetPower(t.Context(), node, id(1), plugins.PowerRunning, true)
		_, off := r.SetPower(t.Context(), node, id(1), plugins.PowerShutdown, true)
		for _, err := range []error{spawned, on, off, r.Destroy(t.Context(), node, id(1))} {
			if !isFault(err) {
				t.Errorf("%v, want a fault", err)
			}
		}
		if list, err := r.Instances(t.Context(), node); err != nil || len(list) != 0 {
			t.Errorf("%+v, %v", list, err)
		}
		if len(r.writes) > 0 {
			t.Errorf("%v", r.writes)
		}
		diff(t, "left", []string{"domain theirs-1"}, r.left())

		// The same uuid comes between the first look and the decision.
		r.domains = map[string]*body{}
		look := r.setup.Discover
		r.setup.Discover = func(ctx context.Context, tree *providertree.Tree, node string) (Host, error) {
			r.unmanaged(1)
			return look(ctx, tree, node)
		}
		if _, err := r.spawn(request(1)); err == nil || len(r.writes) > 0 {
			t.Errorf("%v, %v", err, r.writes)
		}
	})
}

func TestFailedSpawnLeavesNothing(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, change := range map[string]func(*plugins.InstanceSpec){
		"more processors than are free": func(s *plugins.InstanceSpec) {
			s.Flavor.VCPUs = 7
			s.Allocations[rootUUID]["PCPU"] = 7
		},
		"an unknown provider":    func(s *plugins.InstanceSpec) { s.Allocations[id(99)] = map[string]int64{"VCPU": 1} },
		"an unknown image":       func(s *plugins.InstanceSpec) { s.Image = "cirros" },
		"less disk than granted": func(s *plugins.InstanceSpec) { s.Flavor.EphemeralGB = 1 },
		"a disk of no size":      func(s *plugins.InstanceSpec) { s.Flavor.RootGB = -1 },
		"an invalid uuid":        func(s *plugins.InstanceSpec) { s.UUID = "../../etc" },
		"too much user data":     func(s *plugins.InstanceSpec) { s.UserData = make([]byte, 64<<10+1) },
		"an unknown firmware": func(s *plugins.InstanceSpec) {
			s.ImageProperties = map[string]string{"hw_firmware_type": "coreboot"}
		},
		"a property that is not supported": func(s *plugins.InstanceSpec) {
			s.ImageProperties =
				map[string]string{"hw_sound_model": "ich9"}
		},
		"secure boot by a BIOS": func(s *plugins.InstanceSpec) {
			s.Flavor.ExtraSpecs, s.ImageProperties = map[string]string{"os:secure_boot": "required"},
				map[string]string{"hw_firmware_type": "bios"}
		},
		"a TPM that the host does not have": func(s *plugins.InstanceSpec) {
			s.Flavor.ExtraSpecs =
				map[string]string{"hw:tpm_version": "1.2"}
		},
		"a watchdog that barks": func(s *plugins.InstanceSpec) {
			s.Flavor.ExtraSpecs =
				map[string]string{"hw:watchdog_action": "bark"}
		},
		"what the host does not have": func(s *plugins.InstanceSpec) {
			s.ImageProperties =
				map[string]string{"hw_video_model": "qxl"}
		},
		"a file of properties as an image": func(s *plugins.InstanceSpec) { s.Image = "debian.properties.json" },
		"a limit": func(s *plugins.InstanceSpec) {
			s.Flavor.ExtraSpecs =
				map[string]string{"quota:cpu_quota": "10000"}
		},
		"an extra spec of its own namespace": func(s *plugins.InstanceSpec) {
			s.Flavor.ExtraSpecs =
				map[string]string{"hw:unheard_of": "1"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Config{})
				spec := request(1)
				change(&spec)
				if _, err := r.spawn(spec); !isFault(err) {
					t.Errorf("%v, want a fault", err)
				}
				if len(r.writes) > 0 || len(r.left()) > 0 {
					t.Errorf("%v, %v", r.writes, r.left())
				}
			})
		})
	}
}

// TestInstanceThatRanIsKept: an extra spec that is refused by now does not end what was made
// before.
func TestInstanceThatRanIsKept(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.mustSpawn(request(1))
		before := len(r.writes)
		again := request(1)
		again.Flavor.ExtraSpecs = map[string]string{"hw:sound_model": "ich9"}
		if is, err := r.spawn(again); err != nil || is.Power != plugins.PowerRunning {
			t.Errorf("%+v, %v", is, err)
		}
		if len(r.writes) != before {
			t.Errorf("it was changed: %v", r.writes[before:])
		}
	})
}

// TestDiskErrors: a host that has no space for the disks (here: a file where the directory should
// be) gives back what was taken.
func TestDiskErrors(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.before = func() {
			if len(r.writes) == 0 {
				r.write(filepath.Join(r.dir, domain.Name(id(1))), "in the way")
			}
		}
		if _, err := r.spawn(request(1)); !isFault(err) {
			t.Errorf("%v, want a fault", err)
		}
		diff(t, "left", []string(nil), r.left())
	})
}

func TestWithoutLibvirtNothingIsBegun(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.away = true
		s := *r.setup
		away := hypervisor.NewLink(
			hypervisor.Settings{URI: "fake:///", Open: r.open, ConnectTimeout: time.Second, CallTimeout: time.Second})
		defer func() { testproc.NoError(t, away.Close(t.Context())) }()
		s.Read, s.Write = away, []*hypervisor.Link{away}
		r.SetSetup(&s.Setup)
		_, listed := r.Instances(t.Context(), node)
		_, spawned := r.spawn(request(1))
		_, powered := r.SetPower(t.Context(), node, id(1), plugins.PowerRunning, false)
		for _, err := range []error{listed, spawned, powered, r.Destroy(t.Context(), node, id(1))} {
			testproc.ErrorIs(t, err, plugins.ErrNotReady, "%v")
		}
		r.SetSetup(nil)
		_, listed = r.Instances(t.Context(), node)
		_, spawned = r.spawn(request(1))
		_, powered = r.SetPower(t.Context(), node, id(1), plugins.PowerRunning, false)
		for _, err := range []error{listed, spawned, powered, r.Destroy(t.Context(), node, id(1))} {
			testproc.ErrorIs(t, err, plugins.ErrUnsupported, "%v")
		}
	})
}

// TestSlowStartsDoNotBlockOtherCalls: guests that start slowly hold up neither lists, nor decisions
// about others, nor the end of others.
func TestSlowStartsDoNotBlockOtherCalls(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.mustSpawn(request(3))
		r.hold = make(chan struct{})
		look := r.setup.Discover
		r.setup.Discover = func(ctx context.Context, tree *providertree.Tree, node string) (Host, error) {
			h, err := look(ctx, tree, node)
			time.Sleep(time.Second) // what it saw is old when it is decided about
			return h, err
		}
		spawned := make(chan error, 2)
		for n := 1; n <= 2; n++ {
			spec := request(n)
			delete(spec.Allocations, gpuUUID)
			go func() { _, err := r.spawn(spec); spawned <- err }()
		}
		time.Sleep(time.Minute)
		begun := time.Now()
		list, err := r.Instances(t.Context(), node)
		if err != nil || len(list) != 3 {
			t.Errorf("%+v, %v", list, err)
		}
		pins := slices.Concat(r.defined(1).Pins, r.defined(2).Pins, r.defined(3).Pins)
		slices.SortFunc(pins, slices.Compare)
		diff(t, "pins", [][]int{{2}, {3}, {4}, {5}, {6}, {7}}, pins)
		if time.Since(begun) > 0 {
			t.Error("the list waited")
		}
		// All connections for what takes long have something to do. Who does not wait for one
		// leaves what there is.
		spec := request(4)
		spec.Allocations = providertree.ProviderResources{rootUUID: {"VCPU": 2, "MEMORY_MB": 512, "DISK_GB": 2}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		testproc.Try(r.Spawn(ctx, node, spec, nil)).ErrorIs(t, context.DeadlineExceeded, "%v")
		if _, there := r.domains[id(4)]; !there {
			t.Error("it was removed")
		}
		close(r.hold)
		for range 2 {
			testproc.NoError(t, <-spawned)
		}
	})
}
