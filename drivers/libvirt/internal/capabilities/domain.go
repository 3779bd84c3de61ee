// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"
)

// Domain is what one emulator can give, for one kind of guest. All lists are sorted, each value
// once, in libvirt's words.
type Domain struct {
	// Emulator is the program, Type how guests run: kvm, qemu (emulated), xen.
	Emulator, Type string
	// Arch is the guest's architecture; Machine the machine type in full (pc-q35-7.2), "" where
	// there is only one.
	Arch, Machine string
	// MaxVCPUs is the most virtual processors that a guest can have, 0 if libvirt does not say.
	MaxVCPUs int
	Loader   Loader
	// DiskBuses are virtio, sata and the like; VideoModels vga, none and the like.
	DiskBuses, VideoModels []string
	// Filesystems are the drivers of directories that are shared with a guest: path, virtiofs.
	Filesystems []string
	TPM         TPM
	SEV         SEV
	// Security are the kinds of encrypted guests that libvirt lists (since 10.5): sev, sev-snp,
	// tdx, s390-pv.
	Security []string
}

// Loader is how guests can boot.
type Loader struct {
	// Types are rom (BIOS) and pflash (UEFI). They say what the emulator can load, not that there
	// is something to load.
	Types []string
	// Firmware are the kinds that libvirt finds by itself, bios or efi; Files says that it knows of
	// firmware files.
	Firmware []string
	Files    bool
	// Secure says that guests can have secure boot.
	Secure bool
}

// TPM is what there is of trusted platform modules.
type TPM struct {
	// Models are tpm-tis, tpm-crb and the like.
	Models []string
	// Backends are passthrough, and emulator where swtpm is installed.
	Backends []string
	// Versions are 1.2 and 2.0, empty if libvirt (before 8.6) does not say.
	Versions []string
}

// SEV is AMD's encryption of guests.
type SEV struct {
	Supported bool
	// MaxGuests and MaxESGuests are how many guests with SEV, and how many with encrypted registers
	// (SEV-ES, SEV-SNP), there can be; 0 if libvirt (before 8.0) does not say, or there can be
	// none.
	MaxGuests, MaxESGuests int
}

// ParseDomain reads one document. It errs where it is not one, or where architecture or type are
// missing.
//
// Cost: O(len(text)), see BenchmarkParseDomain.
func ParseDomain(text string) (Domain, error) {
	var x libvirtxml.DomainCaps
	err := Decode(text, &x)
	if err == nil && (strings.TrimSpace(x.Arch) == "" || strings.TrimSpace(x.Domain) == "") {
		err = errors.New("there is no <arch> or no <domain>")
	}
	if err != nil {
		return Domain{}, fmt.Errorf("libvirt's domain capabilities: %w", err)
	}
	c := Domain{Emulator: strings.TrimSpace(x.Path), Type: strings.TrimSpace(x.Domain), Arch: strings.TrimSpace(x.Arch),
		Machine: strings.TrimSpace(x.Machine)}
	if x.VCPU != nil {
		c.MaxVCPUs = count(x.VCPU.Max)
	}
	if x.OS != nil && x.OS.Supported == yes {
		c.Loader = loader(*x.OS)
	}
	if d := x.Devices; d != nil {
		c.DiskBuses, c.VideoModels, c.Filesystems = enum(d.Disk, "bus"), enum(d.Video, "modelType"),
			enum(d.FileSystem, "driverType")
		c.TPM = TPM{Models: enum(d.TPM, "model"), Backends: enum(d.TPM, "backendModel"),
			Versions: enum(d.TPM, "backendVersion")}
	}
	if f := x.Features; f != nil {
		if f.SEV != nil && f.SEV.Supported == yes {
			c.SEV = SEV{Supported: true, MaxGuests: count(f.SEV.MaxGuests), MaxESGuests: count(f.SEV.MaxESGuests)}
		}
		if f.LaunchSecurity != nil && f.LaunchSecurity.Supported == yes {
			c.Security = values(f.LaunchSecurity.Enums, "sectype")
		}
	}
	return c, nil
}

func loader(os libvirtxml.DomainCapsOS) Loader {
	l := Loader{Firmware: values(os.Enums, "firmware")}
	if os.Loader != nil && os.Loader.Supported == yes {
		l.Types, l.Files = values(os.Loader.Enums, "type"), len(os.Loader.Values) > 0
		l.Secure = slices.Contains(values(os.Loader.Enums, "secure"), yes)
	}
	return l
}

// yes is libvirt's way to say that something is there.
const yes = "yes"

// enum are the values of a list of a device that is supported.
func enum(d *libvirtxml.DomainCapsDevice, name string) []string {
	if d == nil || d.Supported != yes {
		return nil
	}
	return values(d.Enums, name)
}

func values(lists []libvirtxml.DomainCapsEnum, name string) []string {
	var out []string
	for _, list := range lists {
		if list.Name == name {
			for _, v := range list.Values {
				out = append(out, strings.TrimSpace(v))
			}
		}
	}
	return sorted(out)
}

// maxCount is more than there is of processors of a guest, or of guests.
const maxCount = 1 << 20

func count(n uint) int { return int(min(n, maxCount)) }
