// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/boundedxml"
)

// MaxVCPUs is how many virtual processors a domain may have here.
const MaxVCPUs = 4096

// Bounds of what is read. libvirt makes nothing near them; metadata and descriptions are free text of other programs.
const (
	maxBytes    = 4 << 20 // libvirt's own limit of a string in one message
	maxDepth    = 64
	maxElements = 100_000
	maxDevices  = 4096
	maxCells    = 1024
	maxNumbers  = 1 << 20 // of all sets of processors and cells together
)

// Parse reads the XML of a domain, as libvirt gives it out. Elements that it does not know are passed over; it errs where identity,
// placement or devices cannot be told.
//
// Cost: O(len(text)), most of it in encoding/xml; see BenchmarkParse.
func Parse(text []byte) (Domain, error) {
	if len(text) > maxBytes {
		return Domain{}, fmt.Errorf("the XML of a domain has %d bytes, more than %d", len(text), maxBytes)
	}
	decoder := boundedxml.NewDecoder(bytes.NewReader(text), boundedxml.Bounds{Depth: maxDepth, Elements: maxElements}, idle())
	var x domainXML
	if err := decoder.Decode(&x); err != nil {
		return Domain{}, fmt.Errorf("the XML of a domain: %w", err)
	}
	if err := rest(decoder); err != nil {
		return Domain{}, fmt.Errorf("the XML of a domain: %w", err)
	}
	d, err := x.read()
	switch {
	case err != nil && d.UUID != "":
		return Domain{}, fmt.Errorf("domain %s: %w", d.UUID, err)
	case err != nil:
		return Domain{}, fmt.Errorf("the XML of a domain: %w", err)
	}
	return d, nil
}

// rest makes sure that nothing follows but space and comments.
func rest(decoder *xml.Decoder) error {
	for {
		token, err := decoder.Token()
		switch token := token.(type) {
		case xml.StartElement:
			return fmt.Errorf("<%.60s> follows the end", token.Name.Local)
		case xml.CharData:
			if len(bytes.TrimSpace(token)) > 0 {
				return errors.New("text follows the end")
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// idle tells the elements that are of no use: what nobody looks at of a domain, and of its devices.
func idle() func(depth int, name xml.Name) bool {
	inDevices := false
	return func(depth int, name xml.Name) bool {
		switch depth {
		case 2:
			inDevices = name.Local == "devices"
			return name.Space != "" || !looked[name.Local]
		case 3:
			return inDevices && !lookedDevices[name.Local]
		}
		return false
	}
}

var (
	looked = map[string]bool{
		"uuid": true, "name": true, "title": true, "metadata": true, "memory": true, "currentMemory": true, "vcpu": true, "cputune": true,
		"numatune": true, "cpu": true, "memoryBacking": true, "devices": true, "launchSecurity": true,
	}
	lookedDevices = map[string]bool{"hostdev": true, "interface": true, "disk": true, "memory": true}
)

// domainXML is what is looked at. What there must be once is a list, so that a second one is noticed.
type domainXML struct {
	XMLName       xml.Name      `xml:"domain"`
	Type          string        `xml:"type,attr"`
	UUID          []string      `xml:"uuid"`
	Name          []string      `xml:"name"`
	Title         string        `xml:"title"`
	Metadata      metadataXML   `xml:"metadata"`
	Memory        []sizeXML     `xml:"memory"`
	CurrentMemory []sizeXML     `xml:"currentMemory"`
	VCPU          []vcpuXML     `xml:"vcpu"`
	CPUTune       cputuneXML    `xml:"cputune"`
	NUMATune      numatuneXML   `xml:"numatune"`
	Cells         []cellXML     `xml:"cpu>numa>cell"`
	HugePages     *hugepagesXML `xml:"memoryBacking>hugepages"`
	Devices       devicesXML    `xml:"devices"`
	Security      *securityXML  `xml:"launchSecurity"`
}

type sizeXML struct {
	Unit  string `xml:"unit,attr"`
	Value string `xml:",chardata"`
}

type vcpuXML struct {
	CPUSet  string `xml:"cpuset,attr"`
	Current string `xml:"current,attr"`
	Count   string `xml:",chardata"`
}

type cputuneXML struct {
	VCPU []struct {
		VCPU   string `xml:"vcpu,attr"`
		CPUSet string `xml:"cpuset,attr"`
	} `xml:"vcpupin"`
	Emulator []struct {
		CPUSet string `xml:"cpuset,attr"`
	} `xml:"emulatorpin"`
}

type numatuneXML struct {
	Memory []struct {
		Mode    string `xml:"mode,attr"`
		NodeSet string `xml:"nodeset,attr"`
	} `xml:"memory"`
	Cells []struct {
		Cell    string `xml:"cellid,attr"`
		Mode    string `xml:"mode,attr"`
		NodeSet string `xml:"nodeset,attr"`
	} `xml:"memnode"`
}

type cellXML struct {
	ID     string `xml:"id,attr"`
	CPUs   string `xml:"cpus,attr"`
	Memory string `xml:"memory,attr"`
	Unit   string `xml:"unit,attr"`
}

type hugepagesXML struct {
	Pages []struct {
		Size    string `xml:"size,attr"`
		Unit    string `xml:"unit,attr"`
		NodeSet string `xml:"nodeset,attr"`
	} `xml:"page"`
}

type devicesXML struct {
	Hostdevs   []deviceXML `xml:"hostdev"`
	Interfaces []deviceXML `xml:"interface"`
	Disks      []deviceXML `xml:"disk"`
	Memory     []struct {
		Model string `xml:"model,attr"`
	} `xml:"memory"`
}

type deviceXML struct {
	Type string `xml:"type,attr"`
	// Device and what follows are of disks.
	Device string `xml:"device,attr"`
	Source struct {
		Address []addressXML `xml:"address"`
		File    string       `xml:"file,attr"`
		Dev     string       `xml:"dev,attr"`
		Name    string       `xml:"name,attr"`
	} `xml:"source"`
	Target struct {
		Dev string `xml:"dev,attr"`
	} `xml:"target"`
	Serial string `xml:"serial"`
}

type addressXML struct {
	UUID     string `xml:"uuid,attr"`
	Domain   string `xml:"domain,attr"`
	Bus      string `xml:"bus,attr"`
	Slot     string `xml:"slot,attr"`
	Function string `xml:"function,attr"`
}

type securityXML struct {
	Type   string `xml:"type,attr"`
	Policy string `xml:"policy"`
}
