// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

const pciDevices = "sys/bus/pci/devices"

// Devices reads the PCI devices, in the order of their addresses. None on a host without PCI. One
// whose files cannot be read, or contradict those of others, is unread, and no error.
func (r *Reader) Devices() ([]machine.Device, []machine.UnreadDevice, error) {
	names, err := r.root.Names(pciDevices)
	if absent(err) && !exists(r.root, "sys/bus/pci") && exists(r.root, "sys") {
		return nil, nil, nil // a kernel without PCI
	}
	if err != nil {
		return nil, nil, withHint(err)
	}
	devices := make([]machine.Device, 0, len(names))
	var unread []machine.UnreadDevice
	for _, name := range names {
		d, err := r.device(name)
		if err != nil {
			unread = append(unread, unreadDevice(name, d, err))
			continue
		}
		devices = append(devices, d)
	}
	slices.SortFunc(devices, func(a, b machine.Device) int { return a.Address.Compare(b.Address) })
	devices, unread = leaveOut(devices, unread, r.checkFunctions(devices, unread))
	return devices, unread, nil
}

// unreadDevice has what is known of a device beside the problem with it.
func unreadDevice(name string, d machine.Device, problem error) machine.UnreadDevice {
	const what = "%v. This device is left out, and its resource provider stays as it is. %s"
	hint := "This is temporary while devices are added or removed. If it persists, the device or its driver is at " +
		"fault: see the kernel log, and reload the driver or reset the device"
	if errors.Is(problem, fs.ErrPermission) {
		hint = permissionHint
	}
	u := machine.UnreadDevice{Name: name, Physical: d.Physical, Problem: fmt.Sprintf(what, problem, hint)}
	if a, err := address(name); err == nil {
		u.Address = &a
	}
	return u
}

// leaveOut moves the devices with problems to the unread ones.
func leaveOut(
	devices []machine.Device, unread []machine.UnreadDevice, problems map[machine.Address]error,
) ([]machine.Device, []machine.UnreadDevice) {
	devices = slices.DeleteFunc(devices, func(d machine.Device) bool {
		problem := problems[d.Address]
		if problem != nil {
			unread = append(unread, unreadDevice(d.Address.String(), d, problem))
		}
		return problem != nil
	})
	slices.SortFunc(unread, func(a, b machine.UnreadDevice) int { return strings.Compare(a.Name, b.Name) })
	return devices, unread
}

func (r *Reader) device(name string) (dev machine.Device, err error) {
	at := pciDevices + "/" + name
	if dev.Address, err = address(name); err != nil {
		return dev, fmt.Errorf("%s: %w", r.root.Path(at), err)
	}
	where, err := r.root.Target(at)
	if err != nil {
		return dev, err
	}
	if path.Base(where) != name || !strings.HasPrefix(where, "sys/devices/") {
		return dev, fmt.Errorf("%s: the link points to %.100q, which is not a path of this device",
			r.root.Path(at), where)
	}
	// Below its real path, so that errors name the file where it is.
	err = inDir(r.root, where, func(d *Dir) error { return readDevice(d, &dev) })
	if err != nil {
		err = fmt.Errorf("PCI device %s (%s): %w", name, r.root.Path(at), err)
	}
	return dev, err
}

// address reads the canonical form only: the names of the kernel's directories are the same each
// time.
func address(name string) (machine.Address, error) {
	a, err := machine.ParseAddress(name)
	if err == nil && a.String() != name {
		err = fmt.Errorf("%.60q is not how the kernel writes PCI addresses", name)
	}
	return a, err
}

func readDevice(d *Dir, dev *machine.Device) error {
	names, err := d.Names(".")
	if err != nil {
		return err
	}
	there := func(name string) bool { _, found := slices.BinarySearch(names, name); return found }
	var id uint32
	if id, err = value(d, "vendor", hexadecimal(16)); err != nil {
		return err
	}
	dev.Vendor = uint16(id)
	if id, err = value(d, "device", hexadecimal(16)); err != nil {
		return err
	}
	dev.Product = uint16(id)
	if dev.Class, err = value(d, "class", hexadecimal(24)); err != nil {
		return err
	}
	dev.Cell = machine.NoCell
	if there("numa_node") { // not if the kernel was built without NUMA
		if dev.Cell, err = value(d, "numa_node", ordinal); err != nil {
			return err
		}
	}
	if there("driver") {
		if dev.Driver, err = d.Base("driver"); err != nil {
			return err
		}
		dev.GivesToGuests = there("vfio-dev") || strings.HasSuffix(dev.Driver, "vfio-pci") ||
			strings.HasSuffix(dev.Driver, "vfio_pci")
	}
	if there("physfn") {
		pf, err := link(d, "physfn")
		if err != nil {
			return err
		}
		dev.Physical = &pf
	}
	if there("sriov_totalvfs") {
		return readFunctions(d, dev, names)
	}
	return nil
}

// link reads which device a link points to.
func link(d *Dir, name string) (machine.Address, error) {
	base, err := d.Base(name)
	if err != nil {
		return machine.Address{}, err
	}
	a, err := address(base)
	if err != nil {
		return a, fmt.Errorf("%s: the link points to no device: %w", d.Path(name), err)
	}
	return a, nil
}

// readFunctions reads the virtual functions of a physical one.
func readFunctions(d *Dir, dev *machine.Device, names []string) (err error) {
	const how = "; this is temporary while virtual functions are being enabled or disabled"
	if dev.MaxVirtual, err = value(d, "sriov_totalvfs", number); err != nil {
		return err
	}
	enabled, err := value(d, "sriov_numvfs", number)
	if err != nil {
		return err
	}
	if enabled > dev.MaxVirtual {
		return malformed(d, "sriov_numvfs", fmt.Sprint(enabled),
			"more virtual functions are enabled than the maximum of %d", dev.MaxVirtual)
	}
	links := 0
	for _, name := range names {
		if strings.HasPrefix(name, "virtfn") {
			links++
		}
	}
	if links != enabled {
		return malformed(d, "sriov_numvfs", fmt.Sprint(enabled), "there are %d links virtfn*"+how, links)
	}
	for i := range enabled {
		vf, err := link(d, fmt.Sprintf("virtfn%d", i))
		if err != nil {
			return err
		}
		dev.Virtual = append(dev.Virtual, vf)
	}
	return nil
}

// checkFunctions holds the links between physical and virtual functions against each other, as far
// as both ends can be read.
func (r *Reader) checkFunctions(devices []machine.Device, unread []machine.UnreadDevice) map[machine.Address]error {
	byAddress := make(map[machine.Address]*machine.Device, len(devices))
	for i := range devices {
		byAddress[devices[i].Address] = &devices[i]
	}
	unknown := machine.UnreadAddresses(unread)
	problems := map[machine.Address]error{}
	for _, d := range devices {
		at := r.root.Path(pciDevices + "/" + d.Address.String())
		for i, address := range d.Virtual {
			switch vf := byAddress[address]; {
			case unknown[address]:
			case vf == nil:
				problems[d.Address] = fmt.Errorf("%s/virtfn%d: there is no device %s", at, i, address)
			case vf.Physical == nil || *vf.Physical != d.Address:
				problems[address] = fmt.Errorf("%s/virtfn%d: device %s does not name this one as its physical function",
					at, i, address)
			}
		}
		if d.Physical == nil || unknown[*d.Physical] {
			continue
		}
		if pf := byAddress[*d.Physical]; pf == nil || !slices.Contains(pf.Virtual, d.Address) {
			problems[d.Address] = fmt.Errorf("%s/physfn: device %s does not have this one among its virtual functions",
				at, d.Physical)
		}
	}
	return problems
}
