// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	name = filepath.Join(dir, name)
	testproc.Check(t, os.MkdirAll(filepath.Dir(name), 0o755))
	testproc.Check(t, os.WriteFile(name, []byte(text), 0o644))
}

// linkPMEM makes a relative link, as sysfs has them.
func linkPMEM(t testing.TB, dir, name, target string) {
	t.Helper()
	relative := testproc.Try(filepath.Rel(filepath.Dir(name), target)).Or(t)
	testproc.Check(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
	testproc.Check(t, os.Symlink(relative, filepath.Join(dir, name)))
}

func remove(t testing.TB, dir, name string) {
	t.Helper()
	testproc.Check(t, os.RemoveAll(filepath.Join(dir, name)))
}

const ndbus = "sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0012:00/ndbus0"

// region is where the kernel has a namespace's region.
func region(n machine.Namespace) string {
	number, _ := namespaceNumbers(n.Name)
	return fmt.Sprintf("%s/region%d", ndbus, number)
}

// sysfs writes a namespace as the kernel shows it.
func sysfs(t testing.TB, dir string, n machine.Namespace) {
	t.Helper()
	here := region(n) + "/" + n.Name
	write(t, dir, here+"/size", fmt.Sprintf("%d\n", n.Bytes))
	write(t, dir, here+"/mode", string(n.Mode)+"\n")
	write(t, dir, here+"/numa_node", fmt.Sprintf("%d\n", n.Cell))
	write(t, dir, here+"/force_raw", "0\n")
	if n.Label != "" {
		write(t, dir, here+"/alt_name", n.Label+"\n")
	}
	linkPMEM(t, dir, pmemDevices+"/"+n.Name, here)
	number, id := namespaceNumbers(n.Name)
	holder := fmt.Sprintf("dax%d.%d", number, id)
	if n.Mode != machine.ModeDAX {
		write(t, dir, here+"/holder", "\n")
		return
	}
	write(t, dir, here+"/holder", holder+"\n")
	there := region(n) + "/" + holder
	write(t, dir, there+"/dax_region/align", "2097152\n")
	linkPMEM(t, dir, pmemDevices+"/"+holder, there)
	if n.Device != "" {
		device := there + "/" + filepath.Base(n.Device)
		write(t, dir, device+"/size", fmt.Sprintf("%d\n", n.Bytes))
		if n.Driver != "" {
			linkPMEM(t, dir, device+"/driver", "sys/bus/dax/drivers/"+n.Driver)
		}
	}
}

// TestReadPMEMMatchesTheFiles: a host with a namespace of each sort: what was written is read, in
// the order of the numbers.
func TestReadPMEMMatchesTheFiles(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	write(t, dir, pmemDevices+"/nmem0/uevent", "") // something else on the bus
	var want []machine.Namespace
	add := func(region, id int, n machine.Namespace) {
		n.Name = fmt.Sprintf("namespace%d.%d", region, id)
		if n.Device != "" {
			n.Device = fmt.Sprintf("/dev/dax%d.%d", region, id)
		}
		sysfs(t, dir, n)
		if n.Bytes > 0 {
			want = append(want, n)
		}
	}
	add(2, 0, machine.Namespace{Label: "ns0", Mode: machine.ModeRaw, Bytes: 1 << 21})
	add(2, 1, machine.Namespace{Mode: machine.ModeSafe, Bytes: 4 << 30, Cell: machine.NoCell})
	add(2, 9, machine.Namespace{Mode: machine.ModeRaw, Bytes: 0})
	add(2, 10, machine.Namespace{Label: "my memory", Mode: machine.ModeMemory, Bytes: maxPMEMBytes, Cell: 3})
	add(10, 0, machine.Namespace{Label: "größe", Mode: machine.ModeDAX, Bytes: 4 << 30, Cell: 1,
		Device: "yes", Driver: "device_dax"})
	add(10, 2, machine.Namespace{Label: "größe", Mode: machine.ModeDAX, Bytes: 4 << 30, Cell: 1,
		Device: "yes", Driver: "kmem"})
	add(10, 3, machine.Namespace{Label: "ns1", Mode: machine.ModeDAX, Bytes: 4 << 30, Cell: 1, Device: "yes"})
	add(10, 11, machine.Namespace{Label: "ns2", Mode: machine.ModeDAX, Bytes: 4 << 30, Cell: 1})
	got := testproc.Try(ReadPMEM(dir)).Or(t)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
}

func TestHostsWithoutPersistentMemory(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	if list, err := ReadPMEM(dir); err != nil || len(list) > 0 {
		t.Errorf("no bus: %v, %v", list, err)
	}
	write(t, dir, pmemDevices+"/region0/size", "0\n")
	if list, err := ReadPMEM(dir); err != nil || len(list) > 0 {
		t.Errorf("no namespace: %v, %v", list, err)
	}
	remove(t, dir, pmemDevices)
	write(t, dir, pmemBus+"/uevent", "")
	if list, err := ReadPMEM(dir); err == nil {
		t.Errorf("a bus without devices is %v", list)
	}
	if _, err := ReadPMEM(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("a directory that is not there is a host")
	}
}

// usable is a namespace that a guest can have.
func usable(name, label string) machine.Namespace {
	return machine.Namespace{Name: name, Label: label, Mode: machine.ModeDAX, Bytes: 4 << 30, Device: "/dev/dax" +
		strings.TrimPrefix(name, "namespace"), Driver: "device_dax"}
}

// TestOtherKernels: kernels differ.
func TestOtherKernels(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	one := usable("namespace0.0", "ns0")
	one.Cell = 1
	here, there := region(one)+"/namespace0.0", region(one)+"/dax0.0"
	for name, tc := range map[string]struct {
		change func(t *testing.T, dir string)
		want   func(n *machine.Namespace)
	}{
		"the region has the cell": {
			change: func(t *testing.T, dir string) {
				remove(t, dir, here+"/numa_node")
				write(t, dir, region(one)+"/numa_node", "3\n")
				linkPMEM(t, dir, pmemDevices+"/region0", region(one))
			},
			want: func(n *machine.Namespace) { n.Cell = 3 },
		},
		"no NUMA": {
			change: func(t *testing.T, dir string) { remove(t, dir, here+"/numa_node") },
			want:   func(n *machine.Namespace) { n.Cell = machine.NoCell },
		},
		"devices as a class": {
			change: func(t *testing.T, dir string) {
				remove(t, dir, there+"/dax0.0")
				write(t, dir, there+"/dax/dax0.0/size", "1\n")
			},
			want: func(*machine.Namespace) {},
		},
		"devices as a class, and none": {
			change: func(t *testing.T, dir string) {
				remove(t, dir, there+"/dax0.0")
				write(t, dir, there+"/dax/uevent", "\n")
			},
			want: func(n *machine.Namespace) { n.Device, n.Driver = "", "" },
		},
		"divided": {
			change: func(t *testing.T, dir string) {
				write(t, dir, there+"/dax0.10/size", "1\n")
				write(t, dir, there+"/dax0.2/size", "1\n")
			},
			want: func(*machine.Namespace) {},
		},
		"divided, and the first is gone": {
			change: func(t *testing.T, dir string) {
				remove(t, dir, there+"/dax0.0")
				write(t, dir, there+"/dax0.10/size", "1\n")
				write(t, dir, there+"/dax0.2/size", "1\n")
			},
			want: func(n *machine.Namespace) { n.Device, n.Driver = "/dev/dax0.2", "" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, want := t.TempDir(), one
			sysfs(t, dir, one)
			tc.change(t, dir)
			tc.want(&want)
			got := testproc.Try(ReadPMEM(dir)).Or(t)
			testproc.Same(t, cmp.Diff([]machine.Namespace{want}, got))
		})
	}
}

// TestBrokenPMEM: what cannot be is an error that names the file.
func TestBrokenPMEM(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	one := usable("namespace0.0", "ns0")
	here := pmemDevices + "/namespace0.0"
	for _, tc := range []struct {
		file, text, want string
	}{
		{here + "/size", "4G\n", `namespace0.0/size: "4G": no size in bytes`},
		{here + "/size", "-1\n", `namespace0.0/size: "-1": no size in bytes`},
		{here + "/size", "144115188075855873\n", `namespace0.0/size: "144115188075855873": no size in bytes`},
		{here + "/size", "", `namespace0.0/size: "": no size in bytes`},
		{here + "/alt_name", strings.Repeat("x", 65), `namespace0.0/alt_name: "` + strings.Repeat("x", 60) +
			`": no name of a namespace`},
		{here + "/alt_name", "a\nb\n", `namespace0.0/alt_name: "a\nb": no name of a namespace`},
		{here + "/mode", "devdax\n", `namespace0.0/mode: "devdax": neither raw, safe, memory nor dax`},
		{here + "/mode", "", `namespace0.0/mode: "": neither raw, safe, memory nor dax`},
		{here + "/holder", "\n", `namespace0.0/holder: "": the mode is dax, and the holder no device such as dax0.0`},
		{here + "/holder", "pfn0.0\n",
			`namespace0.0/holder: "pfn0.0": the mode is dax, and the holder no device such as dax0.0`},
		{here + "/holder", "dax0.0/../..\n",
			`namespace0.0/holder: "dax0.0/../..": the mode is dax, and the holder no device such as dax0.0`},
		{here + "/numa_node", "-2\n", `namespace0.0/numa_node: "-2": neither the number of a NUMA cell nor -1`},
		{here + "/numa_node", "none\n", `namespace0.0/numa_node: "none": neither the number of a NUMA cell nor -1`},
		{pmemDevices + "/namespacex/size", "1\n",
			`namespacex: "namespacex": no name of a namespace such as namespace0.0`},
	} {
		dir := t.TempDir()
		sysfs(t, dir, one)
		write(t, dir, tc.file, tc.text)
		_, err := ReadPMEM(dir)
		if want := "reading persistent memory: " + dir +
			"/" + pmemDevices + "/" + tc.want; err == nil || err.Error() != want {
			t.Errorf("%s %.70q: %v, want\n%s", tc.file, tc.text, err, want)
		}
	}
	for _, file := range []string{here + "/size", here + "/mode", here + "/holder", pmemDevices + "/dax0.0"} {
		dir := t.TempDir()
		sysfs(t, dir, one)
		remove(t, dir, file)
		if _, err := ReadPMEM(dir); !absent(err) || !strings.Contains(err.Error(), file) {
			t.Errorf("without %s: %v", file, err)
		}
	}
}

// TestLinksOutOfTheRootAreRefused: nothing outside of the directory is read.
func TestLinksOutOfTheRootAreRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	outside := t.TempDir()
	write(t, outside, "size", "4096\n")
	write(t, outside, "mode", "raw\n")
	dir := t.TempDir()
	write(t, dir, pmemDevices+"/region0/size", "0\n")
	testproc.Check(t, os.Symlink(outside, filepath.Join(dir, pmemDevices, "namespace0.0")))
	if list, err := ReadPMEM(dir); err == nil {
		t.Errorf("read %v", list)
	}
}

// FuzzFiles: files can hold anything: no panic, and what is taken can be.
func FuzzFiles(f *testing.F) {
	f.Add("4294967296", "ns0", "dax", "dax0.0", "0")
	f.Add("0", "", "raw", "", "-1")
	f.Add("1", "\xff", "safe", "pfn0.0", "x")
	f.Add("18446744073709551616", strings.Repeat("x", 64), "memory", "dax1.0/..", "2147483648")
	f.Fuzz(func(t *testing.T, size, label, mode, holder, cell string) {
		if n, err := parsePMEMSize(size); err == nil && n > maxPMEMBytes {
			t.Errorf("%q is %d bytes", size, n)
		}
		if l, err := parsePMEMLabel(label); err == nil &&
			(l != label || len(l) > machine.MaxPMEMLabel+1 || strings.Contains(l, "\n")) {
			t.Errorf("%q is the label %q", label, l)
		}
		if m, err := parsePMEMMode(mode); err == nil && m == "" {
			t.Errorf("%q is an unknown mode", mode)
		}
		if h, err := parsePMEMHolder(holder); err == nil && (!strings.HasPrefix(h, "dax") || strings.Contains(h, "/")) {
			t.Errorf("%q is a device", h)
		}
		if c, err := parsePMEMCell(cell); err == nil && c < machine.NoCell {
			t.Errorf("%q is cell %d", cell, c)
		}
	})
}
