// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Address is where a PCI device is.
type Address struct {
	Domain         uint32
	Bus            uint8
	Slot, Function uint8
}

var (
	addressText = regexp.MustCompile(`^([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([01][0-9a-fA-F])\.([0-7])$`)
	addressName = regexp.MustCompile(`^pci_([0-9a-f]{4,8})_([0-9a-f]{2})_([01][0-9a-f])_([0-7])$`)
)

// ParseAddress reads the kernel's form, 0000:82:00.0.
func ParseAddress(text string) (Address, error) {
	m := addressText.FindStringSubmatch(text)
	if m == nil {
		return Address{}, fmt.Errorf("%q is not a PCI address such as 0000:82:00.0", text)
	}
	return addressOf(m), nil
}

// ParseDeviceName reads libvirt's form, pci_0000_82_00_0.
func ParseDeviceName(name string) (Address, error) {
	m := addressName.FindStringSubmatch(name)
	if m == nil {
		return Address{}, fmt.Errorf("%q is not a PCI device name such as pci_0000_82_00_0", name)
	}
	return addressOf(m), nil
}

func addressOf(m []string) Address {
	number := func(text string, bits int) uint64 {
		n, _ := strconv.ParseUint(text, 16, bits) // the expression allows nothing else
		return n
	}
	return Address{
		Domain: uint32(number(m[1], 32)), Bus: uint8(number(m[2], 8)), Slot: uint8(number(m[3], 8)),
		Function: uint8(number(m[4], 8)),
	}
}

// String is the kernel's form, 0000:82:00.0.
func (a Address) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", a.Domain, a.Bus, a.Slot, a.Function)
}

// DeviceName is libvirt's form, pci_0000_82_00_0.
func (a Address) DeviceName() string {
	return "pci_" + strings.NewReplacer(":", "_", ".", "_").Replace(a.String())
}

// Compare orders addresses by domain, bus, slot and function.
func (a Address) Compare(b Address) int {
	return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Bus, b.Bus), cmp.Compare(a.Slot, b.Slot),
		cmp.Compare(a.Function, b.Function))
}

// CompareDevices orders devices that need not be PCI devices: those that have an address come
// first, in the order of their addresses, then the others in the order of their names.
func CompareDevices(a, b *Address, nameA, nameB string) int {
	switch {
	case a != nil && b != nil:
		return a.Compare(*b)
	case a != nil:
		return -1
	case b != nil:
		return 1
	}
	return cmp.Compare(nameA, nameB)
}

// PassedDevice is a PCI device as a guest gets it.
type PassedDevice struct {
	Address Address
	// Managed: libvirt binds the device to vfio-pci when the guest starts, and back when it ends
	// (managed='yes'). Else it stays on its driver, which has to be one for VFIO.
	Managed bool
}

// Compare orders devices by their addresses.
func (d PassedDevice) Compare(other PassedDevice) int { return d.Address.Compare(other.Address) }
