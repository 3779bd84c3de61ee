// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

const (
	pmemBus     = "sys/bus/nd"
	pmemDevices = pmemBus + "/devices"
)

var (
	namespaceName = regexp.MustCompile(`^namespace([0-9]{1,9})\.([0-9]{1,9})$`)
	daxName       = regexp.MustCompile(`^dax[0-9]{1,9}\.[0-9]{1,9}$`)
)

// ReadPMEM reads the namespaces of a host from below a directory that has sys in it: "/", or
// another one in tests and demonstrations. They come in the order of their numbers. Those without
// size are places for new ones, and left out; a kernel without persistent memory has none.
//
// Whatever is missing, malformed or contradicts the rest is an error that names the file. While
// namespaces are made or enabled an error can be due to that, and the next look succeeds.
//
// Cost: 4 files for each namespace, 2 more in mode devdax.
func ReadPMEM(dir string) (list []machine.Namespace, err error) {
	root, err := OpenDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading persistent memory: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	names, err := root.Names(pmemDevices)
	if absent(err) {
		if _, err := root.Names(pmemBus); absent(err) {
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
	slices.SortFunc(list, func(a, b machine.Namespace) int {
		regionA, idA := namespaceNumbers(a.Name)
		regionB, idB := namespaceNumbers(b.Name)
		return cmp.Or(cmp.Compare(regionA, regionB), cmp.Compare(idA, idB))
	})
	return list, nil
}

// namespaceNumbers returns the numbers in the name of a namespace: of the region, and in it.
func namespaceNumbers(name string) (region, id int) {
	m := namespaceName.FindStringSubmatch(name)
	region, _ = strconv.Atoi(m[1]) // the expression allows nothing else
	id, _ = strconv.Atoi(m[2])
	return region, id
}

// maxPMEMBytes is more than a namespace can have: the processor's address space.
const maxPMEMBytes = 1 << 57

func parsePMEMSize(text string) (uint64, error) {
	bytes, err := strconv.ParseUint(text, 10, 64)
	if err != nil || bytes > maxPMEMBytes {
		return 0, errors.New("no size in bytes")
	}
	return bytes, nil
}

func parsePMEMLabel(text string) (string, error) {
	if len(text) > machine.MaxPMEMLabel+1 || strings.ContainsAny(text, "\n\x00") {
		return "", errors.New("no name of a namespace")
	}
	return text, nil
}

func parsePMEMCell(text string) (int, error) {
	cell, err := strconv.ParseInt(text, 10, 32)
	if err != nil || cell < machine.NoCell {
		return 0, errors.New("neither the number of a NUMA cell nor -1")
	}
	return int(cell), nil
}

func parsePMEMMode(text string) (machine.Mode, error) {
	m := machine.Mode(text)
	if !slices.Contains([]machine.Mode{machine.ModeRaw, machine.ModeSafe, machine.ModeMemory, machine.ModeDAX}, m) {
		return "", errors.New("neither raw, safe, memory nor dax")
	}
	return m, nil
}

func parsePMEMHolder(text string) (string, error) {
	if !daxName.MatchString(text) {
		return "", errors.New("the mode is dax, and the holder no device such as dax0.0")
	}
	return text, nil
}

func readNamespace(root *Dir, name string) (n machine.Namespace, err error) {
	dir := pmemDevices + "/" + name
	if !namespaceName.MatchString(name) {
		return n, malformed(root, dir, name, "no name of a namespace such as namespace0.0")
	}
	n.Name = name
	if n.Bytes, err = value(root, dir+"/size", parsePMEMSize); err != nil || n.Bytes == 0 {
		return n, err
	}
	// Memory without space for labels has no such file.
	if n.Label, err = value(root, dir+"/alt_name", parsePMEMLabel); err != nil && !absent(err) {
		return n, err
	}
	if err := readPMEMCell(&n, root, dir); err != nil {
		return n, err
	}
	if n.Mode, err = value(root, dir+"/mode", parsePMEMMode); err != nil || n.Mode != machine.ModeDAX {
		return n, err
	}
	holder, err := value(root, dir+"/holder", parsePMEMHolder)
	if err != nil {
		return n, err
	}
	return n, readPMEMDevice(&n, root, pmemDevices+"/"+holder)
}

// readPMEMCell reads the NUMA cell, which is that of the region. A kernel without NUMA has no such
// file in either place.
func readPMEMCell(n *machine.Namespace, root *Dir, dir string) (err error) {
	region, _ := namespaceNumbers(n.Name)
	for _, file := range []string{dir + "/numa_node", fmt.Sprintf("%s/region%d/numa_node", pmemDevices, region)} {
		if n.Cell, err = value(root, file, parsePMEMCell); !absent(err) {
			return err
		}
	}
	n.Cell = machine.NoCell
	return nil
}

// readPMEMDevice finds the character device below the holder: directly, or one level down in
// kernels whose character devices are a class (before 5.1, and later ones that keep to it), where
// no other driver can have it.
func readPMEMDevice(n *machine.Namespace, root *Dir, holder string) error {
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
		n.Device, n.Driver = "/dev/"+device, "device_dax"
	}
	return nil
}

// firstDevice is the first of a region's character devices, which is the one that Nova takes. A
// namespace has one, unless it was divided.
func firstDevice(names []string) string {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !daxName.MatchString(name) })
	if len(names) == 0 {
		return ""
	}
	return slices.MinFunc(names,
		func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
}
