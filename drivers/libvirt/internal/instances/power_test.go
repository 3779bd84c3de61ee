// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestPowerStates(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const running, shutdown = plugins.PowerRunning, plugins.PowerShutdown
	for _, c := range []struct {
		name    string
		state   hypervisor.State
		to      plugins.PowerState
		hard    bool
		ignores int
		steps   []string
		takes   time.Duration
		fault   bool
	}{
		{name: "on, and is", state: hypervisor.Running, to: running},
		{name: "on", state: hypervisor.ShutOff, to: running, steps: []string{"start"}},
		{name: "on from paused", state: hypervisor.Paused, to: running, steps: []string{"resume"}},
		{name: "on from crashed", state: hypervisor.Crashed, to: running, steps: []string{"destroy", "start"}},
		{name: "on from suspended", state: hypervisor.PMSuspended, to: running, fault: true},
		{name: "off, and is", state: hypervisor.ShutOff, to: shutdown},
		{name: "off at once", state: hypervisor.Running, to: shutdown, hard: true, steps: []string{"destroy"}},
		{name: "off gently", state: hypervisor.Running,
			to: shutdown, steps: []string{"shutdown"}, takes: 50 * time.Millisecond},
		{name: "off when asked again", state: hypervisor.Running, to: shutdown, ignores: 2,
			steps: []string{"shutdown", "shutdown", "shutdown"}, takes: 20*time.Second + 50*time.Millisecond},
		{
			name: "off and does not listen", state: hypervisor.Running, to: shutdown,
			ignores: 99, takes: 45 * time.Second,
			steps: []string{"shutdown", "shutdown", "shutdown", "shutdown", "shutdown", "destroy"},
		},
		{name: "off from paused", state: hypervisor.Paused, to: shutdown, steps: []string{"destroy"}},
		{name: "nowhere", state: hypervisor.Running, to: plugins.PowerSuspended, fault: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Config{ShutdownTimeout: "45s"})
				r.mustSpawn(request(1))
				r.writes, r.ignores = nil, c.ignores
				if b := r.domains[id(1)]; c.state == hypervisor.ShutOff {
					b.off(offShutdown)
				} else {
					b.State = c.state
				}
				begun := time.Now()
				is, err := r.SetPower(t.Context(), node, id(1), c.to, c.hard)
				if c.fault {
					if !isFault(err) {
						t.Errorf("%v, want a fault", err)
					}
				} else if err != nil || is.Power != c.to {
					t.Errorf("%+v, %v", is, err)
				}
				diff(t, "steps", c.steps, r.writes)
				if took := time.Since(begun); took < c.takes || took > c.takes+200*time.Millisecond {
					t.Errorf("it took %s, want %s", took, c.takes)
				}
			})
		})
	}
}

func TestPowerOfAMissingInstance(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		_, err := r.SetPower(t.Context(), node, id(1), plugins.PowerShutdown, true)
		testproc.ErrorIs(t, err, plugins.ErrInstanceNotFound, "%v")
		if _, err := r.SetPower(t.Context(), "cn2", id(1), plugins.PowerShutdown, true); err == nil ||
			errors.Is(err, plugins.ErrInstanceNotFound) {
			t.Errorf("%v", err)
		}
	})
}

// TestSwitchingOff: a guest that ends by itself at the last moment is off all the same; one that
// libvirt does not switch off is not.
func TestSwitchingOff(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.mustSpawn(request(1))
		r.tough = true
		before := r.left()
		if _, err := r.SetPower(t.Context(), node, id(1), plugins.PowerShutdown, true); !isFault(err) {
			t.Errorf("%v, want a fault", err)
		}
		if err := r.Destroy(t.Context(), node, id(1)); err == nil {
			t.Error("it runs, and was removed")
		}
		diff(t, "left", before, r.left())
		r.before = func() { r.domains[id(1)].off(offShutdown) }
		if is, err := r.SetPower(t.Context(), node, id(1), plugins.PowerShutdown, true); err != nil ||
			is.Power != plugins.PowerShutdown {
			t.Errorf("%+v, %v", is, err)
		}
	})
}

// TestPowerOnAfterTheHostWasRestarted: after a restart of the host the mediated devices are gone.
// They are made again under the same uuids, or, if that cannot be, the instance stays off.
func TestPowerOnAfterTheHostWasRestarted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.mustSpawn(request(1))
		before := r.left()
		restart := func() {
			r.domains[id(1)].off(0)
			r.devices = map[string]bool{}
			r.writes = nil
		}
		restart()
		if is, err := r.SetPower(t.Context(), node, id(1), plugins.PowerRunning, false); err != nil ||
			is.Power != plugins.PowerRunning {
			t.Errorf("%+v, %v", is, err)
		}
		diff(t, "what there is", before, r.left())
		restart()
		r.fail = 1
		if _, err := r.SetPower(t.Context(), node, id(1), plugins.PowerRunning, false); !isFault(err) {
			t.Errorf("%v, want a fault", err)
		}
		if r.defined(1).Mark == nil || r.domains[id(1)].ID != hypervisor.NotRunning {
			t.Error("it is not as it was")
		}
		// One that is defined is started.
		restart()
		r.fail = 0
		r.devices["mdev_"+fmt.Sprint(underscored(r.defined(1).Mark.Mdevs[0].UUID))+"_0000_82_00_0"] = false
		if _, err := r.SetPower(t.Context(), node, id(1), plugins.PowerRunning, false); err != nil {
			t.Error(err)
		}
		diff(t, "steps", []string{"start device", "start"}, r.writes)
	})
}

func underscored(uuid string) string {
	out := []byte(uuid)
	for i := range out {
		if out[i] == '-' {
			out[i] = '_'
		}
	}
	return string(out)
}

// TestTheListOfInstances: a list asks for the XML of what changed only.
func TestTheListOfInstances(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.mustSpawn(request(1))
		r.mustSpawn(request(2))
		r.unmanaged(3)
		r.domains[id(2)].off(offCrashed)
		want := []plugins.Instance{
			{UUID: id(1), Name: "server 1", Power: plugins.PowerRunning, HypervisorName: "instance-" + id(1)},
			{UUID: id(2), Name: "server 2", Power: plugins.PowerCrashed, HypervisorName: "instance-" + id(2)},
		}
		for range 2 {
			got := testproc.Try(r.Instances(t.Context(), node)).Or(t)
			diff(t, "list", want, got)
		}
		before := r.reads
		r.tell(hypervisor.Event{Domain: id(1)})
		if _, err := r.Instances(t.Context(), node); err != nil || r.reads != before+1 {
			t.Errorf("%d descriptions were read for one that changed, %v", r.reads-before, err)
		}
		// What looks like one of ours and cannot be read is no reason to say that there is none.
		r.domains[id(1)].XML = "<domain"
		r.domains[id(1)].ID = 99
		if list, err := r.Instances(t.Context(), node); err == nil {
			t.Errorf("%+v", list)
		}
	})
}

// TestEvents: events of our instances are passed on, once for a burst; those of others are not.
func TestEvents(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.unmanaged(7)
		testproc.Try(r.Instances(t.Context(), node)).Or(t)
		ctx, cancel := context.WithCancel(t.Context())
		type change struct{ Node, UUID string }
		received, ended := make(chan change, 100), make(chan error, 1)
		go func() { ended <- r.Watch(ctx, func(node, uuid string) { received <- change{node, uuid} }) }()
		synctest.Wait()
		r.mustSpawn(request(1))
		r.tell(hypervisor.Event{Domain: id(7)})
		time.Sleep(time.Second)
		r.tell(hypervisor.Event{Device: "mdev_x"})
		time.Sleep(time.Second)
		testproc.Equal(t, len(received), 1, "%d events")
		diff(t, "event", change{node, id(1)}, <-received)
		time.Sleep(6 * time.Minute)
		diff(t, "after long silence", change{}, <-received)
		r.SetSetup(nil)
		r.tell(hypervisor.Event{Domain: id(1)})
		time.Sleep(time.Second)
		if len(received) > 0 {
			t.Errorf("%+v, and instances are not managed", <-received)
		}
		cancel()
		testproc.ErrorIs(t, <-ended, context.Canceled, "%v")
	})
}
