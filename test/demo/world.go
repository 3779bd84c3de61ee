// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/compute-agent/compute-agent/test/testhost"
)

const (
	// home is the directory of all files; it is in memory, and in the demonstration's namespace
	// alone.
	home = "/dev/shm/demo"
	// configFile is the agent's configuration, from there.
	configFile = "cn1.toml"
	// closing bounds the end.
	closing = 30 * time.Second
)

// gpus are the made-up host's, one in each socket.
var gpus = []string{"0000:05:00.0", "0000:82:00.0"}

// mdevType is what guests are given of a GPU, of which each makes 8.
const mdevType = "nvidia-231"

// guest is one that runs on the host, and what nova-compute allocated for it.
type guest struct {
	name, uuid    string
	vcpus, memory int
	// gpu is the number of the GPU that makes its virtual one, -1 if it has none.
	gpu int
	// cell is the NUMA cell to which it is bound, -1 if to none.
	cell int
}

var guests = []guest{
	{name: "render", uuid: "11111111-0000-4000-8000-000000000001", vcpus: 4, memory: 4096, gpu: 0, cell: 0},
	{name: "train", uuid: "11111111-0000-4000-8000-000000000002", vcpus: 6, memory: 8192, gpu: 1, cell: 1},
	{name: "infer", uuid: "11111111-0000-4000-8000-000000000003", vcpus: 2, memory: 2048, gpu: 1, cell: 1},
	{name: "web", uuid: "11111111-0000-4000-8000-000000000004", vcpus: 2, memory: 1024, gpu: -1, cell: -1},
}

// mdev is the UUID of the guest's virtual GPU.
func (g guest) mdev() string { return "9" + g.uuid[1:] }

// holds is what the guest holds in Placement, whatever the layout of the tree.
func (g guest) holds() map[string]int64 {
	amounts := map[string]int64{"VCPU": int64(g.vcpus), "MEMORY_MB": int64(g.memory)}
	if g.gpu >= 0 {
		amounts["VGPU"] = 1
	}
	return amounts
}

// world is all that runs.
type world struct {
	host testhost.Host
	sim  *testhost.Sim
	bin  string // the directory of the binaries, trusted by the agent
	env  []string

	placement, agent *process
	compute          []*process // the compute API and its cells
}

// build makes up the host and starts its guests. What it started is ended by close, also when it
// fails.
func build(ctx context.Context, binaries string) (w *world, err error) {
	client, err := clientEnv()
	if err != nil {
		return nil, err
	}
	w = &world{host: testhost.Sample(), bin: filepath.Join(home, "bin")}
	first := w.host.Device(gpus[0]) // without the virtual GPU that the sample has
	first.Mdevs = nil
	first.Types[0].Available++
	if w.host.Processor.Flags, err = flags(); err != nil {
		return nil, err
	}
	for _, dir := range []string{w.bin, filepath.Join(home, "state"), filepath.Join(home, "run"),
		filepath.Join(home, "instances")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"compute-agent", "compute-driver-libvirt"} { // owned by root here
		if err := install(filepath.Join(binaries, name), filepath.Join(w.bin, name)); err != nil {
			return nil, err
		}
	}
	// The disk for guests has the same size on every machine.
	if err := syscall.Mount("tmpfs", filepath.Join(home, "instances"), "tmpfs", 0, "size=500g"); err != nil {
		return nil, fmt.Errorf("mounting the guests' disk: %w", err)
	}
	w.sim, err = testhost.StartSim(ctx, w.host, testhost.SimOptions{Passthrough: true})
	if err != nil {
		return nil, err
	}
	if err := names(w.sim.Root()); err != nil {
		return nil, errors.Join(err, w.close(ctx))
	}
	w.env = append(os.Environ(),
		"PATH="+w.bin+":"+os.Getenv("PATH"), "STATE_DIRECTORY="+filepath.Join(home, "state"),
		"RUNTIME_DIRECTORY="+filepath.Join(home, "run"),
		"LIBVIRT_DEFAULT_URI="+w.sim.URI(), "LC_ALL=C.UTF-8", "NO_COLOR=1", "TZ=UTC")
	w.env = append(w.env, client...)
	if err := w.bootGuests(ctx); err != nil {
		return nil, errors.Join(err, w.close(ctx))
	}
	return w, nil
}

// names writes the host's database of PCI IDs, so that this machine's does not matter.
func names(root string) error {
	dir := filepath.Join(root, "usr/share/misc")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "pci.ids"),
		[]byte("10de  NVIDIA Corporation\n\t1eb8  TU104GL [Tesla T4]\n"), 0o644)
}

// flags are this machine's processor flags: libvirt asks the processor itself, and would contradict
// a made-up list.
func flags() ([]string, error) {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "flags" {
			return strings.Fields(value), nil
		}
	}
	return nil, errors.New("/proc/cpuinfo has no flags: the made-up host is an x86 one, and this machine must be, too")
}

func install(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("%w (`make build` makes it)", err)
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func (w *world) bootGuests(ctx context.Context) error {
	for i, g := range guests {
		d := testhost.Domain{Name: g.name, UUID: g.uuid, VCPUs: g.vcpus, MemoryMiB: g.memory}
		if g.gpu >= 0 {
			if err := w.sim.AddMdev(ctx, gpus[g.gpu], mdevType, g.mdev(), 200+i); err != nil {
				return err
			}
			d.Mdevs = []string{g.mdev()}
		}
		if g.cell >= 0 {
			for v := range g.vcpus {
				d.Pins = append(d.Pins, testhost.Pin{VCPU: v, CPUs: w.cpus(g.cell)})
			}
			d.Memory = &testhost.MemoryPlacement{Mode: "strict", Cells: []int{g.cell}}
		}
		if err := w.sim.Define(ctx, d.XML("qemu")); err != nil {
			return err
		}
		if err := w.sim.Boot(ctx, g.name); err != nil {
			return err
		}
	}
	return nil
}

// cpus are those of a cell.
func (w *world) cpus(cell int) (ids []int) {
	for _, c := range w.host.CPUs {
		if c.Cell == cell {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// configure writes the agent's configuration: first what an operator would write, then where things
// are here.
func (w *world) configure() error {
	text := fmt.Sprintf(
		"[drivers.libvirt.config]\nenabled_mdev_types = [%q]\nnuma = \"flat\"\nuri = %q\nchroot = %q\n"+
			"instances_path = %q\n",
		mdevType, w.sim.URI(), w.sim.Root(), filepath.Join(home, "instances"))
	text += fmt.Sprintf("[plugins]\ndir = %q\n[log]\nformat = \"console\"\n", w.bin)
	return os.WriteFile(filepath.Join(home, configFile), []byte(text), 0o600)
}

// close ends everything in order, also when ctx has ended. The end of the namespaces would as well,
// with less care.
func (w *world) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	var err error
	for _, p := range slices.Concat([]*process{w.agent}, w.compute, []*process{w.placement}) {
		err = errors.Join(err, p.stop(ctx))
	}
	return errors.Join(err, w.sim.Close(ctx))
}
