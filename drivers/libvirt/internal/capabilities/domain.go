// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/boundedxml"
)

// Capabilities are those of one emulator for one kind of guest. All lists are sorted, each value once, in libvirt's words.
type Domain struct {
	// Emulator is the program, Type how guests run: kvm, qemu (emulated), xen.
	Emulator, Type string
	// Arch is the guest's architecture; Machine the machine type in full (pc-q35-7.2), "" where there is only one.
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
	// Security are the kinds of encrypted guests that libvirt lists (since 10.5): sev, sev-snp, tdx, s390-pv.
	Security []string
}

// Loader is how guests can boot.
type Loader struct {
	// Types are rom (BIOS) and pflash (UEFI). They say what the emulator can load, not that there is something to load.
	Types []string
	// Firmware are the kinds that libvirt finds by itself, bios or efi; Files says that it knows of firmware files.
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
	// MaxGuests and MaxESGuests are how many guests with SEV, and how many with encrypted registers (SEV-ES, SEV-SNP), there can be; 0 if
	// libvirt (before 8.0) does not say, or there can be none.
	MaxGuests, MaxESGuests int
}

// Parse reads one document. It errs where it is not one, where it breaks the bounds, or where architecture or type are missing.
//
// Cost: O(len(text)), see BenchmarkParse.
func ParseDomain(text string) (Domain, error) {
	c, err := parseDomain(text)
	if err != nil {
		return Domain{}, fmt.Errorf("libvirt's domain capabilities: %w", err)
	}
	return c, nil
}

func parseDomain(text string) (Domain, error) {
	var x domainXML
	if err := decodeDomain(text, &x); err != nil {
		return Domain{}, err
	}
	c := Domain{
		Emulator: strings.TrimSpace(x.Emulator), Type: strings.TrimSpace(x.Type),
		Arch: strings.TrimSpace(x.Arch), Machine: strings.TrimSpace(x.Machine),
		MaxVCPUs: min(x.VCPU.Max, maxCount),
	}
	for _, f := range []struct{ name, value string }{{"path", c.Emulator}, {"domain", c.Type}, {"arch", c.Arch}, {"machine", c.Machine}} {
		if len(f.value) > maxWord {
			return Domain{}, fmt.Errorf("<%s> has %d characters, more than %d", f.name, len(f.value), maxWord)
		}
	}
	if c.Arch == "" || c.Type == "" {
		return Domain{}, errors.New("there is no <arch> or no <domain>")
	}
	if c.MaxVCPUs < 0 {
		return Domain{}, fmt.Errorf("a guest can have %d processors", c.MaxVCPUs)
	}
	err := errors.Join(
		x.Disk.read("bus", &c.DiskBuses), x.Video.read("modelType", &c.VideoModels), x.Filesystem.read("driverType", &c.Filesystems),
		x.TPM.read("model", &c.TPM.Models), x.TPM.read("backendModel", &c.TPM.Backends), x.TPM.read("backendVersion", &c.TPM.Versions),
		x.LaunchSecurity.read("sectype", &c.Security),
		x.OS.read("firmware", &c.Loader.Firmware),
	)
	if x.OS.Supported {
		loader := x.OS.Loader
		var secure []string
		err = errors.Join(err, loader.read("type", &c.Loader.Types), loader.read("secure", &secure))
		c.Loader.Files = bool(loader.Supported) && len(loader.Files) > 0
		c.Loader.Secure = slices.Contains(secure, "yes")
	}
	if x.SEV.Supported {
		c.SEV = SEV{Supported: true, MaxGuests: min(x.SEV.MaxGuests, maxCount), MaxESGuests: min(x.SEV.MaxESGuests, maxCount)}
		if c.SEV.MaxGuests < 0 || c.SEV.MaxESGuests < 0 {
			err = errors.Join(err, errors.New("the number of guests with SEV is below 0"))
		}
	}
	if err != nil {
		return Domain{}, err
	}
	return c, nil
}

// capsXML is what is looked at of the document.
type domainXML struct {
	XMLName  xml.Name `xml:"domainCapabilities"`
	Emulator string   `xml:"path"`
	Type     string   `xml:"domain"`
	Arch     string   `xml:"arch"`
	Machine  string   `xml:"machine"`
	VCPU     struct {
		Max int `xml:"max,attr"`
	} `xml:"vcpu"`
	OS struct {
		listsXML
		Loader struct {
			listsXML
			Files []struct{} `xml:"value"`
		} `xml:"loader"`
	} `xml:"os"`
	Disk       listsXML `xml:"devices>disk"`
	Video      listsXML `xml:"devices>video"`
	Filesystem listsXML `xml:"devices>filesystem"`
	TPM        listsXML `xml:"devices>tpm"`
	SEV        struct {
		Supported   yes `xml:"supported,attr"`
		MaxGuests   int `xml:"maxGuests"`
		MaxESGuests int `xml:"maxESGuests"`
	} `xml:"features>sev"`
	LaunchSecurity listsXML `xml:"features>launchSecurity"`
}

// listsXML is an element with lists of values.
type listsXML struct {
	Supported yes `xml:"supported,attr"`
	Lists     []struct {
		Name   string   `xml:"name,attr"`
		Values []string `xml:"value"`
	} `xml:"enum"`
}

// read sets into to the values of a list, if the element is supported.
func (l listsXML) read(name string, into *[]string) error {
	if !l.Supported {
		return nil
	}
	for _, list := range l.Lists {
		if list.Name != name {
			continue
		}
		for _, v := range list.Values {
			if v = strings.TrimSpace(v); v == "" {
				continue
			}
			if len(v) > maxWord {
				return fmt.Errorf("a value of the list %q has %d characters, more than %d", name, len(v), maxWord)
			}
			*into = append(*into, v)
		}
	}
	slices.Sort(*into)
	*into = slices.Compact(*into)
	return nil
}

// yes is libvirt's way to say that something is there.
type yes bool

// UnmarshalXMLAttr implements [xml.UnmarshalerAttr].
func (y *yes) UnmarshalXMLAttr(attr xml.Attr) error {
	*y = attr.Value == "yes"
	return nil
}

// Bounds of what is read. A real document has some 20 KB, 500 elements, 6 levels.
const (
	maxBytes    = 4 << 20 // libvirt's own limit of a string in one message
	maxDepth    = 32
	maxElements = 50_000
	maxWord     = 4096    // a path
	maxCount    = 1 << 20 // of processors, of guests
)

// decode reads one whole document and makes sure that nothing follows.
func decodeDomain(text string, into any) error {
	if len(text) > maxBytes {
		return fmt.Errorf("the XML has %d bytes, more than %d", len(text), maxBytes)
	}
	decoder := boundedxml.NewDecoder(strings.NewReader(text), boundedxml.Bounds{Depth: maxDepth, Elements: maxElements}, idle)
	if err := decoder.Decode(into); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("the XML is empty")
		}
		return fmt.Errorf("the XML cannot be read: %w", err)
	}
	for {
		token, err := decoder.Token()
		switch token := token.(type) {
		case xml.StartElement:
			return errors.New("an element follows the end of the XML")
		case xml.CharData:
			if len(bytes.TrimSpace(token)) > 0 {
				return errors.New("text follows the end of the XML")
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after the end of the XML: %w", err)
		}
	}
}

// idle tells the CPU models, which are most of a real document.
func idle(depth int, name xml.Name) bool { return depth == 2 && name.Local == "cpu" }
