// SPDX-License-Identifier: Apache-2.0

package pmem

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/chroot"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// Namespace is a part of the persistent memory.
type Namespace struct {
	// Name is the kernel's (namespace0.0), Label the operator's, which ndctl calls the name, "" if it has none.
	Name, Label string
	Mode        Mode
	// Bytes is its size, with what the kernel keeps for itself.
	Bytes uint64
	// Cell is the NUMA cell of its region, or [machine.NoCell].
	Cell int
	// Device is its character device (/dev/dax0.0), "" in other modes and while it is disabled.
	Device string
	// Driver is who has that device: device_dax serves it to programs, kmem makes common memory of it; "" nobody.
	Driver string
}

// Mode is the kernel's word for how a namespace is used.
type Mode string

// The modes.
const (
	ModeRaw    Mode = "raw"
	ModeSafe   Mode = "safe"   // ndctl calls it sector
	ModeMemory Mode = "memory" // ndctl calls it fsdax
	ModeDAX    Mode = "dax"    // ndctl calls it devdax
)

// ndctl is the operator's word.
func (m Mode) ndctl() string {
	switch m {
	case ModeSafe:
		return "sector"
	case ModeMemory:
		return "fsdax"
	case ModeDAX:
		return "devdax"
	}
	return string(m)
}

// serving is the driver of character devices.
const serving = "device_dax"

const (
	bus = "sys/bus/nd"
	at  = bus + "/devices"
)

var (
	namespaceName = regexp.MustCompile(`^namespace([0-9]{1,9})\.([0-9]{1,9})$`)
	daxName       = regexp.MustCompile(`^dax[0-9]{1,9}\.[0-9]{1,9}$`)
)

// Read reads the namespaces of a host from below a directory that has sys in it: "/", or another one in tests and demonstrations. They come in the
// order of their numbers. Those without size are places for new ones, and left out; a kernel without persistent memory has none.
//
// Whatever is missing, malformed or contradicts the rest is an error that names the file. While namespaces are made or enabled an error can
// be due to that, and the next look succeeds.
//
// Cost: 4 files for each namespace, 2 more in mode devdax.
func Read(dir string) (list []Namespace, err error) {
	root, err := chroot.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("reading persistent memory: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	names, err := root.Names(at)
	if absent(err) {
		if _, err := root.Names(bus); absent(err) {
			return nil, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading persistent memory: %w", err)
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "namespace") {
			continue
		}
		n, err := readNamespace(root, name)
		if err != nil {
			return nil, fmt.Errorf("reading persistent memory: %w", err)
		}
		if n.Bytes > 0 {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b Namespace) int {
		regionA, idA := numbers(a.Name)
		regionB, idB := numbers(b.Name)
		return cmp.Or(cmp.Compare(regionA, regionB), cmp.Compare(idA, idB))
	})
	return list, nil
}

func absent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// numbers are those of the region and of the namespace in it.
func numbers(name string) (region, id int) {
	m := namespaceName.FindStringSubmatch(name)
	region, _ = strconv.Atoi(m[1]) // the expression allows nothing else
	id, _ = strconv.Atoi(m[2])
	return region, id
}

func malformed(root *chroot.Dir, name, content, what string) error {
	return fmt.Errorf("%s: %.60q: %s", root.Path(name), content, what)
}

// line is the only line of a file.
func line(root *chroot.Dir, name string) (string, error) {
	text, err := root.Text(name)
	return strings.TrimSuffix(text, "\n"), err
}

// value reads a file of one line with a parser whose errors say what the line is not.
func value[T any](root *chroot.Dir, name string, parse func(string) (T, error)) (T, error) {
	var none T
	text, err := line(root, name)
	if err != nil {
		return none, err
	}
	v, err := parse(text)
	if err != nil {
		return none, malformed(root, name, text, err.Error())
	}
	return v, nil
}

// maxBytes is more than a namespace can have: the processor's address space.
const maxBytes = 1 << 57

func parseSize(text string) (uint64, error) {
	bytes, err := strconv.ParseUint(text, 10, 64)
	if err != nil || bytes > maxBytes {
		return 0, errors.New("no size in bytes")
	}
	return bytes, nil
}

func parseLabel(text string) (string, error) {
	if len(text) > maxName+1 || strings.ContainsAny(text, "\n\x00") {
		return "", errors.New("no name of a namespace")
	}
	return text, nil
}

func parseCell(text string) (int, error) {
	cell, err := strconv.ParseInt(text, 10, 32)
	if err != nil || cell < machine.NoCell {
		return 0, errors.New("neither the number of a NUMA cell nor -1")
	}
	return int(cell), nil
}

func parseMode(text string) (Mode, error) {
	m := Mode(text)
	if !slices.Contains([]Mode{ModeRaw, ModeSafe, ModeMemory, ModeDAX}, m) {
		return "", errors.New("neither raw, safe, memory nor dax")
	}
	return m, nil
}

func parseHolder(text string) (string, error) {
	if !daxName.MatchString(text) {
		return "", errors.New("the mode is dax, and the holder no device such as dax0.0")
	}
	return text, nil
}

func readNamespace(root *chroot.Dir, name string) (n Namespace, err error) {
	dir := at + "/" + name
	if !namespaceName.MatchString(name) {
		return n, malformed(root, dir, name, "no name of a namespace such as namespace0.0")
	}
	n.Name = name
	if n.Bytes, err = value(root, dir+"/size", parseSize); err != nil || n.Bytes == 0 {
		return n, err
	}
	// Memory that has no room for labels has no such file.
	if n.Label, err = value(root, dir+"/alt_name", parseLabel); err != nil && !absent(err) {
		return n, err
	}
	if err := n.readCell(root, dir); err != nil {
		return n, err
	}
	if n.Mode, err = value(root, dir+"/mode", parseMode); err != nil || n.Mode != ModeDAX {
		return n, err
	}
	holder, err := value(root, dir+"/holder", parseHolder)
	if err != nil {
		return n, err
	}
	return n, n.readDevice(root, at+"/"+holder)
}

// readCell reads the NUMA cell, which is that of the region. A kernel without NUMA has no such file in either place.
func (n *Namespace) readCell(root *chroot.Dir, dir string) (err error) {
	region, _ := numbers(n.Name)
	for _, file := range []string{dir + "/numa_node", fmt.Sprintf("%s/region%d/numa_node", at, region)} {
		if n.Cell, err = value(root, file, parseCell); !absent(err) {
			return err
		}
	}
	n.Cell = machine.NoCell
	return nil
}

// readDevice finds the character device below the holder: directly, or one level down in kernels whose character devices are a class (before 5.1, and
// later ones that keep to it), where no other driver can have it.
func (n *Namespace) readDevice(root *chroot.Dir, holder string) error {
	names, err := root.Names(holder)
	if err != nil {
		return err
	}
	if device := firstDevice(names); device != "" {
		n.Device = "/dev/" + device
		n.Driver, err = root.Base(holder + "/" + device + "/driver")
		if absent(err) {
			return nil
		}
		return err
	}
	if _, found := slices.BinarySearch(names, "dax"); !found {
		return nil
	}
	if names, err = root.Names(holder + "/dax"); err != nil {
		return err
	}
	if device := firstDevice(names); device != "" {
		n.Device, n.Driver = "/dev/"+device, serving
	}
	return nil
}

// firstDevice is the first of a region's character devices, which is the one that Nova takes. A namespace has one, unless somebody divided it.
func firstDevice(names []string) string {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !daxName.MatchString(name) })
	if len(names) == 0 {
		return ""
	}
	return slices.MinFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
}
