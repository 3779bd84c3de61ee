// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// managed is the configuration of a node in a layout, on which instances can be made.
func managed(layout, instances string) string {
	return laidOut(layout, `"instances":`+instances+`,"guest_list":[{"uuid":"`+guestB+`","node":"cn1"}],`)
}

// process is a driver as it is after a start, with a state directory.
func process(t *testing.T, raw, dir string) *Driver {
	t.Helper()
	d := New()
	testproc.Check(t, d.Configure(context.Background(),
		json.RawMessage(raw), plugins.HostInfo{Name: "this-host", StateDir: dir}))
	return d
}

// wanted is an instance with some of the node itself.
func wanted(amounts map[string]int64) plugins.InstanceSpec {
	return plugins.InstanceSpec{UUID: guestA, Name: "web",
		ProjectID: "p", UserID: "u", Allocations: providertree.ProviderResources{rootUUID: amounts}}
}

func instances(t *testing.T, d *Driver) []plugins.Instance {
	t.Helper()
	return testproc.Try(d.Instances(context.Background(), "cn1")).Or(t)
}

// TestAnInstanceOutlivesTheProcess, whichever of its calls the process ends after.
func TestAnInstanceOutlivesTheProcess(t *testing.T) {
	for _, dir := range []string{t.TempDir(), ""} {
		ctx, raw := context.Background(), managed("flat", "{}")
		d := process(t, raw, dir)
		next := func() *Driver {
			if dir == "" { // in memory it lives as long as the process
				return d
			}
			return process(t, raw, dir)
		}
		tree := reported(t, raw)
		web := plugins.Instance{UUID: guestA, Name: "web", Power: plugins.PowerRunning, HypervisorName: "fake-aaaaaaaa"}
		off := web
		off.Power = plugins.PowerShutdown

		if got := instances(t, d); got == nil || len(got) != 0 {
			t.Errorf("at first: %v", got)
		}
		for range 2 {
			got, err := next().Spawn(ctx, "cn1", wanted(map[string]int64{"VCPU": 2}), tree)
			if diff := cmp.Diff(web, got); err != nil || diff != "" {
				t.Error(err, diff)
			}
			testproc.Same(t, cmp.Diff([]plugins.Instance{web}, instances(t, next())))
		}
		for _, step := range []struct {
			to   plugins.PowerState
			want plugins.Instance
		}{{plugins.PowerShutdown, off}, {plugins.PowerShutdown, off}, {plugins.PowerRunning, web},
			{plugins.PowerShutdown, off}} {
			got, err := next().SetPower(ctx, "cn1", guestA, step.to, false)
			if diff := cmp.Diff(step.want, got); err != nil || diff != "" {
				t.Error(err, diff)
			}
			testproc.Same(t, cmp.Diff([]plugins.Instance{step.want}, instances(t, next())))
		}
		if got, err := next().Spawn(ctx, "cn1", wanted(nil), tree); err != nil || got != off {
			t.Errorf("a Spawn of what was switched off since: %v, %v", got, err)
		}
		for range 2 {
			testproc.NoError(t, next().Destroy(ctx, "cn1", guestA))
			if got := instances(t, next()); len(got) != 0 {
				t.Errorf("after Destroy: %v", got)
			}
		}
		if _, err := next().SetPower(ctx, "cn1", guestA,
			plugins.PowerRunning, false); !errors.Is(err, plugins.ErrInstanceNotFound) {
			t.Errorf("SetPower after Destroy: %v", err)
		}
	}
}

// TestAnInterruptedSpawn is completed by the next one, removed by Destroy, and listed until then.
func TestAnInterruptedSpawn(t *testing.T) {
	hold := filepath.Join(t.TempDir(), "hold")
	write(t, hold, "")
	for name, then := range map[string]func(*Driver,
		plugins.InstanceSpec, *providertree.Tree) ([]plugins.Instance, error){
		"Spawn": func(d *Driver, spec plugins.InstanceSpec, tree *providertree.Tree) ([]plugins.Instance, error) {
			got, err := d.Spawn(context.Background(), "cn1", spec, tree)
			return []plugins.Instance{got}, err
		},
		"Destroy": func(d *Driver, spec plugins.InstanceSpec, _ *providertree.Tree) ([]plugins.Instance, error) {
			return []plugins.Instance{}, d.Destroy(context.Background(), "cn1", spec.UUID)
		},
		"a Spawn that is refused": func(d *Driver,
			spec plugins.InstanceSpec, tree *providertree.Tree) ([]plugins.Instance, error) {
			spec.Image = "none"
			_, err := d.Spawn(context.Background(), "cn1", spec, tree)
			if fault := (*plugins.InstanceFault)(nil); !errors.As(err, &fault) {
				return nil, err
			}
			return []plugins.Instance{}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			raw := managed("flat", `{"images":["debian"],"hold":"`+hold+`"}`)
			d, tree, spec := process(t, raw, dir), reported(t, raw), wanted(map[string]int64{"VGPU": 1})
			cut, cancel := context.WithCancel(context.Background())
			spawned := make(chan error)
			change := d.hypervisor().change()
			go func() {
				_, err := d.Spawn(cut, "cn1", spec, tree)
				spawned <- err
			}()
			<-change // it is defined
			cancel()
			testproc.ErrorIs(t, <-spawned, context.Canceled, "%v")
			half := instances(t, d)
			if len(half) != 1 || half[0].UUID != guestA || half[0].Power != plugins.PowerShutdown {
				t.Errorf("half-made: %v", half)
			}
			again := process(t, managed("flat", `{"images":["debian"]}`), dir)
			want := testproc.Try(then(again, spec, tree)).Or(t)
			testproc.Same(t, cmp.Diff(want, instances(t, again)))
		})
	}
}

// TestWhatIsRefused leaves nothing, and what it is refused for.
func TestWhatIsRefused(t *testing.T) {
	ctx, raw := context.Background(), managed("flat", `{"images":["debian"]}`)
	d, tree := process(t, raw, t.TempDir()), reported(t, raw)
	for want, spec := range map[string]plugins.InstanceSpec{
		"no image":               {UUID: guestA, Image: "windows"},
		"is not one":             {UUID: "../../etc/passwd"},
		"uuid already":           {UUID: guestB},
		"has no inventory of it": wanted(map[string]int64{"PCPU": 1}),
		share:                    {UUID: guestA, Allocations: providertree.ProviderResources{share: {"VCPU": 1}}},
	} {
		var fault *plugins.InstanceFault
		if _, err := d.Spawn(ctx, "cn1", spec, tree); !errors.As(err, &fault) || fault.UUID != spec.UUID ||
			!strings.Contains(fault.Reason, want) {
			t.Errorf("%v: %v", spec, err)
		}
	}
	var fault *plugins.InstanceFault
	if err := d.Destroy(ctx, "cn1", guestB); !errors.As(err, &fault) {
		t.Errorf("Destroy of an unmanaged guest: %v", err)
	}
	testproc.NoErrorf(t, d.Destroy(ctx, "cn1", "../x"), "Destroy of what cannot be")
	if got := instances(t, d); len(got) != 0 {
		t.Errorf("something is left: %v", got)
	}
	for _, c := range []struct {
		raw string
		is  error
	}{{laidOut("flat", ""), plugins.ErrUnsupported},
		{laidOut("flat", `"instances":{},"not_ready":"asleep",`), plugins.ErrNotReady}} {
		testproc.Try(configured(t, c.raw).Instances(ctx, "cn1")).ErrorIs(t, c.is, "%s: %v", c.raw)
	}
	if _, err := d.Instances(ctx, "cn9"); err == nil {
		t.Error("a node that is not configured: no error")
	}
}

// TestInstancesAreGuests, with what they were granted, where it is in the present layout.
func TestInstancesAreGuests(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	flatly := managed("flat", "{}")
	tree := reported(t, flatly)
	d := process(t, flatly, dir)
	testproc.Try(d.Spawn(ctx, "cn1", wanted(map[string]int64{"VCPU": 2, "VGPU": 1, "DISK_GB": 3}), tree)).Or(t)
	for layout, want := range map[string][]string{
		"flat":          {"a: 1 VGPU on cn1", "a: 2 VCPU on cn1", "a: 3 DISK_GB on cn1"},
		"vgpu-children": {"a: 1 VGPU on cn1_gpu_0", "a: 2 VCPU on cn1", "a: 3 DISK_GB on cn1"},
		"numa":          {"a: 1 VGPU on cn1_gpu_0", "a: 2 VCPU on cn1_numa_0", "a: 3 DISK_GB on cn1"},
	} {
		now := reported(t, managed(layout, "{}"))
		guests, err := process(t, managed(layout, "{}"), dir).Guests(ctx, now, "cn1")
		if err != nil || len(guests) != 2 || guests[0].UUID != guestB ||
			guests[1].Name != "web" || guests[1].ProjectID != "p" {
			t.Fatal(err, guests)
		}
		if diff := cmp.Diff(want,
			held(now, consumers(map[string]providertree.ProviderResources{guestA: guests[1].Resources}))); diff != "" {
			t.Errorf("%s: %s", layout, diff)
		}
	}
}

// TestReshapesMoveInstancesToWhereTheyAre: not to where there is room, and the guests' list agrees.
func TestReshapesMoveInstancesToWhereTheyAre(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	flatly := managed("flat", "{}")
	tree := reported(t, flatly)
	d := process(t, flatly, dir)
	at := providertree.Allocations{}
	// The first fills GPU 0, the second GPU 1; when the first is gone, the third comes to its
	// place. By room they would go elsewhere.
	for _, uuid := range []string{"00000000-0000-0000-0000-000000000001",
		"00000000-0000-0000-0000-000000000002", guestA} {
		spec := wanted(map[string]int64{"VGPU": 2, "VCPU": 3})
		spec.UUID = uuid
		if uuid == guestA {
			spec.Allocations[rootUUID]["VGPU"] = 1
			testproc.Check(t, d.Destroy(ctx, "cn1", "00000000-0000-0000-0000-000000000001"))
			delete(at, "00000000-0000-0000-0000-000000000001")
		}
		testproc.Try(d.Spawn(ctx, "cn1", spec, tree)).Or(t)
		at[uuid] = providertree.ConsumerAllocations{Resources: spec.Allocations}
	}
	var err error
	for _, layout := range []string{"vgpu-children", "numa", "flat", "numa", "vgpu-children"} {
		d = process(t, managed(layout, "{}"), dir)
		if at, err = reshape(t, d, tree, at); err != nil {
			t.Fatal(err)
		}
		want := []string{"0: 2 VGPU on cn1_gpu_1",
			"0: 3 VCPU on cn1_numa_1", "a: 1 VGPU on cn1_gpu_0", "a: 3 VCPU on cn1_numa_0"}
		switch layout {
		case "flat":
			want = []string{"0: 2 VGPU on cn1", "0: 3 VCPU on cn1", "a: 1 VGPU on cn1", "a: 3 VCPU on cn1"}
		case "vgpu-children":
			want[1], want[3] = "0: 3 VCPU on cn1", "a: 3 VCPU on cn1"
		}
		testproc.Samef(t, cmp.Diff(want, held(tree, at)), "%s", layout)
		guests := testproc.Try(d.Guests(ctx, tree, "cn1")).Or(t)
		listed := providertree.Allocations{}
		for _, g := range guests {
			if g.UUID != guestB {
				listed[g.UUID] = providertree.ConsumerAllocations{Resources: g.Resources}
			}
		}
		testproc.Samef(t, cmp.Diff(want, held(tree, listed)), "guests, %s", layout)
	}
}

// TestWatchInstances: it reports what the agent does, what another process does to the files, and
// what happens by itself.
func TestWatchInstances(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		raw := managed("flat", "{}")
		d, tree := process(t, raw, dir), reported(t, raw)
		var mu sync.Mutex
		var reports []string
		told := func() []string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			defer func() { reports = nil }()
			return reports
		}
		watching := make(chan error)
		go func() {
			watching <- d.WatchInstances(ctx, func(node, uuid string) {
				mu.Lock()
				defer mu.Unlock()
				reports = append(reports, node+" "+uuid)
			})
		}()
		expect := func(what string, want ...string) {
			t.Helper()
			time.Sleep(2 * pollInterval)
			testproc.Samef(t, cmp.Diff(want, told()), "%s", what)
		}
		expect("nothing happens")
		testproc.Try(d.Spawn(ctx, "cn1", wanted(nil), tree)).Or(t)
		if len(told()) == 0 {
			t.Error("a Spawn is reported only at the next look")
		}
		other := process(t, raw, dir)
		testproc.Try(other.SetPower(ctx, "cn1", guestA, plugins.PowerShutdown, true)).Or(t)
		expect("another process switches it off", "cn1 "+guestA)
		configureIn(t, d, managed("flat", `{"crash":["web"]}`), dir)
		expect("it is off")
		testproc.Try(d.SetPower(ctx, "cn1", guestA, plugins.PowerRunning, true)).Or(t)
		time.Sleep(pollInterval)
		if len(told()) == 0 {
			t.Error("a crash is not reported")
		}
		if got := instances(t, d); got[0].Power != plugins.PowerCrashed {
			t.Errorf("what is to crash is %v", got)
		}
		write(t, filepath.Join(dir, "machines", guestA+".json"), "{")
		expect("a file cannot be read")
		testproc.Check(t, os.Remove(filepath.Join(dir, "machines", guestA+".json")))
		expect("an operator removes it", "cn1 "+guestA)
		cancel()
		testproc.NoError(t, <-watching)
	})
}

// TestAListIsAllOrAnError: one file that cannot be read is not one instance less.
func TestAListIsAllOrAnError(t *testing.T) {
	dir := t.TempDir()
	d := process(t, managed("flat", "{}"), dir)
	testproc.Try(d.Spawn(context.Background(), "cn1", wanted(nil), reported(t, managed("flat", "{}")))).Or(t)
	write(t, filepath.Join(dir, "machines", share+".json"), "{}")
	write(t, filepath.Join(dir, "machines", ".tmp-x.json"), "half of")
	testproc.Try(d.Instances(context.Background(), "cn1")).ErrorHas(t, share, "%v")
	if _, err := d.Guests(context.Background(), reported(t, managed("flat", "{}")), "cn1"); err == nil {
		t.Error("guests: no error")
	}
}

func configureIn(t *testing.T, d *Driver, raw, dir string) {
	t.Helper()
	testproc.Check(t, d.Configure(context.Background(), json.RawMessage(raw), plugins.HostInfo{StateDir: dir}))
}

func write(t *testing.T, path, content string) {
	t.Helper()
	testproc.Check(t, os.MkdirAll(filepath.Dir(path), 0o700))
	testproc.Check(t, os.WriteFile(path, []byte(content), 0o600))
}

// TestRenamedNode: the machines of a node are its own when it has another name, on shared storage,
// too.
func TestRenamedNode(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir, shared := t.TempDir(), t.TempDir()
	configured := func(host plugins.HostInfo) *Driver {
		d := New()
		host.StateDir = dir
		testproc.Check(t, d.Configure(t.Context(), json.RawMessage(`{"instances": {"storage": "`+shared+`"}}`), host))
		return d
	}
	spec := plugins.InstanceSpec{UUID: guestA, Name: "a", Flavor: plugins.Flavor{VCPUs: 1, MemoryMB: 64}}
	testproc.Try(configured(plugins.HostInfo{Name: "cn1"}).Spawn(t.Context(), "cn1", spec, nil)).Or(t)
	renamed := plugins.HostInfo{Name: "cn9", FormerNodes: map[string]string{"cn1": "cn9"}}
	for range 2 {
		d := configured(renamed)
		list := testproc.Try(d.Instances(t.Context(), "cn9")).Or(t)
		testproc.Equal(t, len(list), 1, "the machines of cn9")
		testproc.Equal(t, list[0].Power, plugins.PowerRunning, "its power")
	}
	s := storage(shared)
	testproc.Equal(t, s.has(guestA, "cn9"), true, "cn9 has its disk")
	testproc.Equal(t, s.has(guestA, "cn1"), false, "cn1 has its disk")
}
