// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/selection"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// dedicated are the CPUs that the world's guests are pinned to.
const dedicated = "2-7"

const cpuState = "cpu_state"

// poweredRig is a rig whose dedicated CPUs are switched.
type poweredRig struct {
	*rig
	mu     sync.Mutex
	host   testhost.Host
	tree   testhost.Tree
	denied error
	setup  PowerSetup
}

func newPoweredRig(t *testing.T, strategy string) *poweredRig {
	t.Helper()
	r := &poweredRig{rig: newRig(t, Config{})}
	r.host.CPUs, r.host.Cells = testhost.Grid{Packages: 1,
		CoresPerDie: 4, ThreadsPerCore: 2, MemoryKiB: 16 << 20}.Build()
	dir, err := testhost.Scratch()
	testproc.Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if r.tree, err = r.host.Sysfs(dir); err != nil {
		t.Fatal(err)
	}
	sets := testproc.Try(selection.ParseCPUSets(selection.CPUConfig{Shared: "0,1", Dedicated: dedicated})).Or(t)
	config := selection.DefaultPower()
	config.Management, config.Strategy = true, strategy
	power := testproc.Try(selection.ParsePower(config, sets)).Or(t)
	r.setup = PowerSetup{Power: power, Chroot: dir, Discover: func() ([]int, error) { return nil, nil }}
	r.used.Power = &r.setup
	if power.ByGovernor() {
		for cpu := range 8 {
			r.must(r.tree.Write(r.setup.file(cpu), "ondemand\n"))
		}
	}
	r.starts = r.bindable
	r.restart()
	return r
}

func (r *poweredRig) must(err error) {
	r.t.Helper()
	testproc.Check(r.t, err)
}

// restart is the end of the process at any point, and the next one.
func (r *poweredRig) restart() {
	links := r.connect()
	r.used.Read, r.used.Write, r.setup.Read = links[0], links[1:], links[0]
	r.Manager = New(r.eventLog)
	r.power.write = r.kernel
	r.SetSetup(&r.used)
}

// kernel is what happens to the host when a file is written.
func (r *poweredRig) kernel(root *os.Root, name, text string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.denied != nil {
		return &fs.PathError{Op: "open", Path: name, Err: r.denied}
	}
	if r.setup.ByGovernor() {
		return r.tree.Write(name, text+"\n")
	}
	if err := writeKernel(root, name, text); err != nil {
		return err
	}
	return r.switched(name, text == "1")
}

func (r *poweredRig) switched(name string, on bool) error {
	var cpu int
	if _, err := fmt.Sscanf(filepath.Base(filepath.Dir(name)), "cpu%d", &cpu); err != nil || cpu < 2 {
		return fmt.Errorf("%s is written", name)
	}
	return r.host.Switch(r.tree, cpu, on)
}

// on are the CPUs that are on.
func (r *poweredRig) on() []int {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []int
	for cpu := range 8 {
		text, err := r.tree.Read(r.setup.file(cpu))
		if cpu == 0 && errors.Is(err, fs.ErrNotExist) {
			text, err = "1", nil
		}
		r.must(err)
		if strings.TrimSpace(text) == r.setup.state(true) {
			out = append(out, cpu)
		}
	}
	return out
}

// bindable is what libvirt finds out when it starts a domain.
func (r *poweredRig) bindable(d domain.Domain) error {
	on := r.on()
	for _, cpu := range d.Bound() {
		if cpu > 1 && !slices.Contains(on, cpu) {
			return fmt.Errorf("cannot set CPU affinity: CPU %d is off", cpu)
		}
	}
	return nil
}

// running are the dedicated CPUs that running domains are bound to.
func (r *poweredRig) running() []int {
	r.t.Helper()
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	var out []int
	for _, b := range r.domains {
		if b.ID != hypervisor.NotRunning {
			d := testproc.Try(domain.Parse([]byte(b.XML))).Or(r.t)
			out = append(out, slices.DeleteFunc(d.Bound(), func(cpu int) bool { return cpu < 2 })...)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(out)))
}

// settles checks that exactly what runs is on.
func (r *poweredRig) settles(what string) {
	r.t.Helper()
	on := r.on()
	for _, cpu := range r.running() {
		if !slices.Contains(on, cpu) {
			r.t.Fatalf("%s: CPU %d of a guest that runs is off", what, cpu)
		}
	}
	r.must(r.Power().Reconcile(r.t.Context()))
	on = slices.DeleteFunc(r.on(), func(cpu int) bool { return cpu < 2 })
	if want := r.running(); !slices.Equal(on, want) {
		r.t.Fatalf("%s: CPUs %v are on, %v run guests", what, on, want)
	}
	if text := r.Power().Problem(); text != "" {
		r.t.Fatalf("%s: %s", what, text)
	}
}

// theirs puts a running domain there that is bound to a CPU, or removes it.
func (r *poweredRig) theirs(n, cpu int) {
	r.world.mu.Lock()
	defer r.world.mu.Unlock()
	if _, there := r.domains[id(n)]; there {
		delete(r.domains, id(n))
		return
	}
	tune := fmt.Sprintf("<vcpupin vcpu='0' cpuset='%d'/>", cpu)
	if cpu%2 == 0 {
		tune = fmt.Sprintf("<iothreadpin iothread='1' cpuset='%d'/>", cpu)
	}
	xml := fmt.Sprintf("<domain type='kvm'><name>theirs-%d</name><uuid>%s</uuid><memory>1024</memory><vcpu>1</"+
		"vcpu><iothreads>1</iothreads><cputune>%s</cputune></domain>",
		n, id(n), tune)
	r.lastID++
	r.domains[id(n)] = &body{Domain: hypervisor.Domain{UUID: id(n), Name: fmt.Sprintf("theirs-%d", n), ID: r.lastID,
		State: hypervisor.Running, XML: xml}}
}

// strategies are what CPUs can be switched by.
func strategies(t *testing.T, run func(t *testing.T, strategy string)) {
	for _, strategy := range []string{cpuState, "governor"} {
		t.Run(strategy, func(t *testing.T) { run(t, strategy) })
	}
}

// TestCPUsGoOnAndOffWithGuests: those of a guest are on while it runs, and only then.
func TestCPUsGoOnAndOffWithGuests(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	strategies(t, func(t *testing.T, strategy string) {
		r := newPoweredRig(t, strategy)
		r.settles("the first look")
		if got := len(r.on()); strategy == cpuState && got != 2 {
			t.Errorf("%d CPUs are online", got)
		}
		expect := func(what string, want int) {
			t.Helper()
			if got := len(r.running()); got != want {
				t.Fatalf("%s: %d CPUs run guests, want %d", what, got, want)
			}
			on := slices.DeleteFunc(r.on(), func(cpu int) bool { return cpu < 2 })
			testproc.EqualList(t, r.running(), on, "%s: CPUs %v are on, %v run guests", what, on)
		}
		r.mustSpawn(request(1))
		r.mustSpawn(request(2))
		expect("two guests", 4)
		testproc.Try(r.SetPower(t.Context(), node, id(1), plugins.PowerShutdown, false)).Or(r.t)
		expect("one is shut down", 2)
		testproc.Try(r.SetPower(t.Context(), node, id(1), plugins.PowerRunning, false)).Or(r.t)
		expect("it is started", 4)
		r.must(r.Destroy(t.Context(), node, id(1)))
		r.must(r.Destroy(t.Context(), node, id(2)))
		expect("both are gone", 0)
	})
}

// TestCPUsAreThoseThatRunGuests: after any sequence of what guests and others do, and of processes
// that end in between, each CPU of a guest that runs is on, and the others are off.
func TestCPUsAreThoseThatRunGuests(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	strategies(t, func(t *testing.T, strategy string) {
		for seed := range uint64(6) {
			draw := rand.New(rand.NewPCG(seed, 0))
			r := newPoweredRig(t, strategy)
			done := map[string]int{}
			for range 25 {
				n := 1 + draw.IntN(3)
				what := []string{"spawn", "spawn", "stop", "start", "destroy", "crash", "the guest ends", "theirs",
					"chcpu", "fault"}[draw.IntN(10)]
				done[what]++
				switch what {
				case "spawn":
					_, _ = r.spawn(request(n))
				case "stop":
					_, _ = r.SetPower(t.Context(), node, id(n), plugins.PowerShutdown, draw.IntN(2) == 0)
				case "start":
					_, _ = r.SetPower(t.Context(), node, id(n), plugins.PowerRunning, false)
				case "destroy":
					r.must(r.Destroy(t.Context(), node, id(n)))
				case "crash": // the end of the process, while a guest is being made
					r.world.mu.Lock()
					r.fail, r.how = len(r.writes)+1+draw.IntN(4), []failMode{breaks, breaksAfter}[draw.IntN(2)]
					r.world.mu.Unlock()
					_, _ = r.spawn(request(n))
					r.restart()
				case "fault":
					r.world.mu.Lock()
					r.fail, r.how = len(r.writes)+1+draw.IntN(4), refuses
					r.world.mu.Unlock()
					_, _ = r.spawn(request(n))
				case "the guest ends":
					r.world.mu.Lock()
					if b, there := r.domains[id(n)]; there {
						b.off(offShutdown)
					}
					r.world.mu.Unlock()
				case "theirs": // an operator starts a guest where one can start
					if on := r.on(); on[len(on)-1] > 1 {
						r.theirs(10+n, on[len(on)-1])
					}
				case "chcpu":
					if cpu := 2 + draw.IntN(6); !slices.Contains(r.running(), cpu) {
						r.must(r.tree.Write(r.setup.file(cpu), r.setup.state(true)))
						if !r.setup.ByGovernor() {
							r.must(r.switched(r.setup.file(cpu), true))
						}
					}
				}
				r.world.mu.Lock()
				r.fail = 0
				r.world.mu.Unlock()
				r.settles(fmt.Sprintf("seed %d: %s %d", seed, what, n))
			}
			if done["spawn"] == 0 || done["crash"]+done["fault"] == 0 {
				t.Errorf("seed %d: %v", seed, done)
			}
		}
	})
}

// TestCPUsStayOnUntilTheGuestRuns: the CPUs are not taken away again between the moment when they
// are switched on and the moment when libvirt shows the guest.
func TestCPUsStayOnUntilTheGuestRuns(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newPoweredRig(t, cpuState)
	ctx, cancel := context.WithCancel(t.Context())
	var others, guests sync.WaitGroup
	for range 2 {
		others.Go(func() {
			for ctx.Err() == nil {
				if err := r.Power().Reconcile(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	for n := 1; n <= 3; n++ {
		guests.Go(func() {
			for range 3 {
				if _, err := r.spawn(request(n)); err != nil {
					t.Error(err)
				}
				testproc.NoError(t, r.Destroy(t.Context(), node, id(n)))
			}
		})
	}
	guests.Wait()
	cancel()
	others.Wait()
	r.settles("in the end")
}

// TestCPUsThatCannotBeSwitched: a guest is not started where its CPUs cannot be brought online, and
// the warning says what is missing.
func TestCPUsThatCannotBeSwitched(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, denied := range []error{syscall.EACCES, syscall.EROFS} {
		r := newPoweredRig(t, cpuState)
		r.settles("the first look")
		r.denied = denied
		_, err := r.spawn(request(1))
		var fault *plugins.InstanceFault
		if !errors.As(err, &fault) || !strings.Contains(fault.Reason, "cannot be switched on") {
			t.Fatalf("%v", err)
		}
		if left := r.left(); len(left) > 0 {
			t.Errorf("there are %v", left)
		}
		if text := r.Power().Problem(); !strings.Contains(text, "cpu2/online") ||
			!strings.Contains(text, `"Power of dedicated CPUs" in docs/libvirt.md`) {
			t.Errorf("%q", text)
		}
		r.denied = nil
		r.mustSpawn(request(1))
		r.settles("it is allowed")
		r.denied = denied
		r.must(r.Destroy(t.Context(), node, id(1))) // that its CPUs stay on is no failure of this
		testproc.Contains(t, r.Power().Problem(), "are not switched", "%q")
		r.denied = nil
		r.settles("it is allowed again")
	}
}

// TestUnknownCPUsAreDiscovered: CPUs whose place is not known are on for a moment, once.
func TestUnknownCPUsAreDiscovered(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newPoweredRig(t, cpuState)
	r.settles("the first look")
	var on [][]int
	r.setup.Discover = func() ([]int, error) {
		if on = append(on, r.on()); len(on) == 1 {
			return []int{3, 6}, nil
		}
		return nil, nil
	}
	r.restart()
	r.settles("the second process")
	r.settles("once more")
	if len(on) != 2 || !slices.Equal(on[0], []int{0, 1}) || !slices.Equal(on[1], []int{0, 1, 3, 6}) {
		t.Errorf("discovered with CPUs %v", on)
	}
}

// TestStill: nothing is switched while the kernel's files are read.
func TestStill(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newPoweredRig(t, cpuState)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	r.must(r.Power().WhileUnswitched(t.Context(), func() {
		for range 20 {
			testproc.ErrorIs(t, r.Power().Reconcile(over), context.Canceled, "%v")
		}
	}))
	if on := r.on(); len(on) != 8 {
		t.Errorf("only CPUs %v are on", on)
	}
	testproc.NoError(t, r.Power().WhileUnswitched(t.Context(), func() {}))
	r.settles("then")
}

// TestUnreadableDomains: no CPU is switched off while it is not known which CPUs a domain uses.
func TestUnreadableDomains(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newPoweredRig(t, cpuState)
	r.world.mu.Lock()
	r.domains[id(9)] = &body{Domain: hypervisor.Domain{UUID: id(9), Name: "odd", ID: 3,
		State: hypervisor.Running, XML: "<domain"}}
	r.world.mu.Unlock()
	if err := r.Power().Reconcile(t.Context()); err == nil ||
		!strings.Contains(r.Power().Problem(), `XML of domain "odd" cannot be read`) {
		t.Errorf("%v, %q", err, r.Power().Problem())
	}
	if on := r.on(); len(on) != 8 {
		t.Errorf("only CPUs %v are on", on)
	}
	r.world.mu.Lock()
	r.domains[id(9)].ID = hypervisor.NotRunning
	r.world.mu.Unlock()
	r.settles("it is off")
	r.world.mu.Lock()
	r.away = true
	r.world.mu.Unlock()
	r.used.Power = nil
	r.SetSetup(&r.used)
	testproc.NoErrorf(t, r.Power().Reconcile(t.Context()), "power is not managed")
}

// TestPowerFollowsEvents: what a guest does itself is seen, and a failure is tried again.
func TestPowerFollowsEvents(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newPoweredRig(t, cpuState)
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() {
		testproc.ErrorIs(t, r.Watch(ctx, func(string, string) {}), context.Canceled, "%v")
	})
	defer following.Wait()
	defer cancel()
	wait := func(what string, want int) {
		t.Helper()
		testproc.Eventually(t, testproc.Patience, what, func() error {
			if on := r.on(); len(on) != want {
				return fmt.Errorf("%s: CPUs %v are on", what, on)
			}
			return nil
		})
	}
	wait("nothing runs", 2)
	r.mustSpawn(request(1))
	wait("a guest runs", 4)
	r.world.mu.Lock()
	r.domains[id(1)].off(offShutdown)
	r.world.mu.Unlock()
	r.tell(hypervisor.Event{Domain: id(1)})
	wait("it ended", 2)
}
