// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"cmp"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/capabilities"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/providertree"
)

// Namespace is the namespace of the mark in a domain's metadata which says that the agent made it.
const Namespace = "https://github.com/compute-agent/compute-agent/xmlns/instance/1.0"

// readMetadata reads what Nova and the agent wrote between <metadata> and its end.
func readMetadata(inner string) (*Nova, *Mark, error) {
	var x metadataXML
	if err := capabilities.Decode("<metadata>"+inner+"</metadata>", &x); err != nil {
		return nil, nil, fmt.Errorf("its metadata: %w", err)
	}
	mark, err := x.mark()
	return x.nova(), mark, err
}

// metadataXML is what Nova and the agent write. Elements of other namespaces are ignored, whatever
// their names are.
type metadataXML struct {
	Nova11 []novaXML `xml:"http://openstack.org/xmlns/libvirt/nova/1.1 instance"`
	Nova10 []novaXML `xml:"http://openstack.org/xmlns/libvirt/nova/1.0 instance"`
	Marks  []markXML `xml:"https://github.com/compute-agent/compute-agent/xmlns/instance/1.0 instance"`
}

type novaXML struct {
	Name   string `xml:"name"`
	Flavor struct {
		Name       string `xml:"name,attr"`
		Memory     string `xml:"memory"`
		Disk       string `xml:"disk"`
		Swap       string `xml:"swap"`
		Ephemeral  string `xml:"ephemeral"`
		VCPUs      string `xml:"vcpus"`
		ExtraSpecs []struct {
			Name  string `xml:"name,attr"`
			Value string `xml:",chardata"`
		} `xml:"extraSpecs>extraSpec"`
	} `xml:"flavor"`
	Owner struct {
		User    ownerXML `xml:"user"`
		Project ownerXML `xml:"project"`
	} `xml:"owner"`
	Root *struct {
		Type string `xml:"type,attr"`
		UUID string `xml:"uuid,attr"`
	} `xml:"root"`
}

type ownerXML struct {
	UUID string `xml:"uuid,attr"`
	Name string `xml:",chardata"`
}

// nova is Nova's metadata. No placement depends on it, so unreadable parts are left out.
func (m metadataXML) nova() *Nova {
	all := append(m.Nova11, m.Nova10...)
	if len(all) == 0 {
		return nil
	}
	x := all[0]
	number := func(text string) int64 {
		n, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		return n
	}
	n := &Nova{
		Name: x.Name, FlavorName: x.Flavor.Name,
		VCPUs: number(x.Flavor.VCPUs), MemoryMB: number(x.Flavor.Memory), DiskGB: number(x.Flavor.Disk),
		EphemeralGB: number(x.Flavor.Ephemeral), SwapMB: number(x.Flavor.Swap),
		ProjectID: x.Owner.Project.UUID, ProjectName: x.Owner.Project.Name,
		UserID: x.Owner.User.UUID, UserName: x.Owner.User.Name,
	}
	if x.Root != nil {
		n.ImageID = cmp.Or(x.Root.UUID, x.Root.Type)
	}
	for _, spec := range x.Flavor.ExtraSpecs {
		if n.ExtraSpecs == nil {
			n.ExtraSpecs = map[string]string{}
		}
		n.ExtraSpecs[spec.Name] = strings.TrimSpace(spec.Value)
	}
	return n
}

// markXML is the mark as it is read; [writtenMark] is the same with the prefix in its names,
// because encoding/xml writes no prefixes.
type markXML struct {
	Node  textXML `xml:"node"`
	Name  textXML `xml:"name"`
	Owner struct {
		Project textXML `xml:"project"`
		User    textXML `xml:"user"`
	} `xml:"owner"`
	Flavor textXML   `xml:"flavor"`
	CPUs   cpusXML   `xml:"cpus"`
	Mdevs  []mdevXML `xml:"mdev"`
	VGPUs  []vgpuXML `xml:"vgpu"`
}

type cpusXML struct {
	Isolated string `xml:"isolated,attr"`
}

type mdevXML struct {
	UUID   string `xml:"uuid,attr"`
	Parent string `xml:"parent,attr"`
	Type   string `xml:"type,attr"`
	API    string `xml:"api,attr"`
	Made   string `xml:"made,attr"`
}

type vgpuXML struct {
	Function string `xml:"function,attr"`
	Parent   string `xml:"parent,attr"`
	Type     string `xml:"type,attr"`
	Made     string `xml:"made,attr"`
}

// textXML is any text. What XML cannot hold, or libvirt might not keep, is written in base64.
type textXML struct {
	Encoding string `xml:"encoding,attr,omitempty"`
	Text     string `xml:",chardata"`
}

func textOf(s string) textXML {
	if isPlain(s) {
		return textXML{Text: s}
	}
	return textXML{Encoding: "base64", Text: base64.StdEncoding.EncodeToString([]byte(s))}
}

// isPlain reports whether XML keeps a text unchanged: printable, one line, no surrounding space.
func isPlain(s string) bool {
	return utf8.ValidString(s) && s == strings.TrimSpace(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

func (x textXML) string() (string, error) {
	switch x.Encoding {
	case "":
		return x.Text, nil
	case "base64":
		s, err := base64.StdEncoding.DecodeString(x.Text)
		if err != nil {
			return "", fmt.Errorf("a text in base64: %w", err)
		}
		return string(s), nil
	}
	return "", fmt.Errorf("a text in the encoding %.30q", x.Encoding)
}

// mark returns the agent's mark; nil if the domain has none.
func (m metadataXML) mark() (*Mark, error) {
	if len(m.Marks) == 0 {
		return nil, nil // most domains have none
	}
	if len(m.Marks) > 1 {
		return nil, errors.New("there are several marks of the agent in its metadata")
	}
	x, mark := m.Marks[0], &Mark{}
	mark.Isolated = x.CPUs.Isolated == yes
	for _, text := range []struct {
		from textXML
		to   *string
	}{{x.Node, &mark.Node}, {x.Name, &mark.Name}, {x.Owner.Project, &mark.ProjectID},
		{x.Owner.User, &mark.UserID}, {x.Flavor, &mark.Flavor}} {
		var err error
		if *text.to, err = text.from.string(); err != nil {
			return nil, fmt.Errorf("the mark of the agent in its metadata: %w", err)
		}
	}
	for _, mdev := range x.Mdevs {
		uuid, err := providertree.CanonicalUUID(mdev.UUID)
		if err != nil {
			return nil, fmt.Errorf("the mark of the agent in its metadata: mdev: %w", err)
		}
		mark.Mdevs = append(mark.Mdevs,
			Mdev{UUID: uuid, Parent: mdev.Parent, Type: mdev.Type, API: mdev.API, Made: mdev.Made == yes})
	}
	for _, vgpu := range x.VGPUs {
		function, err := machine.ParseAddress(vgpu.Function)
		if err != nil {
			return nil, fmt.Errorf("the mark of the agent in its metadata: vgpu: %w", err)
		}
		mark.VGPUs = append(mark.VGPUs,
			VGPU{Function: function, Parent: vgpu.Parent, Type: vgpu.Type, Made: vgpu.Made == yes})
	}
	return mark, nil
}

// yes is libvirt's word for true.
const yes = "yes"

// writtenMark is the mark as it is written.
type writtenMark struct {
	XMLName   xml.Name  `xml:"agent:instance"`
	Namespace string    `xml:"xmlns:agent,attr"`
	Node      textXML   `xml:"agent:node"`
	Name      textXML   `xml:"agent:name"`
	Project   textXML   `xml:"agent:owner>agent:project"`
	User      textXML   `xml:"agent:owner>agent:user"`
	Flavor    textXML   `xml:"agent:flavor"`
	CPUs      *cpusXML  `xml:"agent:cpus"`
	Mdevs     []mdevXML `xml:"agent:mdev"`
	VGPUs     []vgpuXML `xml:"agent:vgpu"`
}

func (m Mark) xml() (string, error) {
	x := writtenMark{
		Namespace: Namespace, Node: textOf(m.Node), Name: textOf(m.Name), Project: textOf(m.ProjectID),
		User: textOf(m.UserID), Flavor: textOf(m.Flavor),
	}
	if m.Isolated {
		x.CPUs = &cpusXML{Isolated: yes}
	}
	for _, mdev := range m.Mdevs {
		x.Mdevs = append(x.Mdevs,
			mdevXML{UUID: mdev.UUID, Parent: mdev.Parent, Type: mdev.Type, API: mdev.API, Made: yesNo(mdev.Made)})
	}
	for _, vgpu := range m.VGPUs {
		x.VGPUs = append(x.VGPUs, vgpuXML{Function: vgpu.Function.String(),
			Parent: vgpu.Parent, Type: vgpu.Type, Made: yesNo(vgpu.Made)})
	}
	text, err := xml.MarshalIndent(x, "    ", "  ")
	return string(text), err
}
