// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"encoding/xml"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// vGPUs of vendor-specific VFIO: since Linux 6.8, NVIDIA's driver makes no mediated devices on GPUs
// of Ampere and later. Each virtual function that it has a hand on (sriov-manage makes them) has a
// directory nvidia with the types that it can get now and the type that it has. A function has at
// most one vGPU. By default a GPU makes vGPUs of one size of framebuffer at a time: with the first
// one, the types of other sizes go from all lists, and with the last that fits, all types go.
//
// How many of a type fit on a GPU is in no file of the kernel. NVIDIA's vGPU manager installs it
// with the types' sizes: vgpuConfig.xml.
//
// Sources: NVIDIA vGPU user guide 17 to 19; kubevirt#16890 and kernel/hypeman#327 (the files on an
// L40S), bigstack-oss/cubecos#1338 (on an RTX PRO 6000); xapi-project/xen-api, xapi_vgpu_type.ml
// (vgpuConfig.xml).
const (
	vgpuConfigFile = "usr/share/nvidia/vgpu/vgpuConfig.xml"
	vgpuAPI        = "vfio-pci"
	// maxVGPUTypes is more than a GPU has: its driver can list 64.
	maxVGPUTypes = 1 << 10
)

// vgpuParents reads the GPUs that make vGPUs on virtual functions. One with a file that cannot be
// read makes none, and says why. want is as in [Reader.MdevParents].
func (r *Reader) vgpuParents(devices []machine.Device, want func(id string) bool) []MdevParent {
	byAddress := make(map[machine.Address]*machine.Device, len(devices))
	for i := range devices {
		byAddress[devices[i].Address] = &devices[i]
	}
	var parents []MdevParent
	var config *vgpuConfig
	for i := range devices {
		gpu := &devices[i]
		var functions []machine.Address
		for _, address := range gpu.Virtual {
			vf := byAddress[address]
			if vf != nil && vf.HasNVIDIADriver() && exists(r.root, machine.VGPUFile(address, "")) {
				functions = append(functions, address)
			}
		}
		if len(functions) == 0 {
			continue
		}
		if config == nil {
			config = r.vgpuConfig()
		}
		card, err := r.vgpuCard(gpu, functions)
		p := MdevParent{Name: gpu.Address.String(), Address: &gpu.Address}
		if err != nil {
			p.Problem = err.Error()
		} else {
			card.describe(&p, config.sizes(card.ids), want)
		}
		parents = append(parents, p)
	}
	return parents
}

// vgpuCard is what the kernel's files say of a GPU.
type vgpuCard struct {
	ids       productIDs
	functions []machine.VGPUFunction
	// names of the types that can be made now, by ID.
	names map[string]string
}

// productIDs tell a product from others.
type productIDs struct{ vendor, product, subVendor, subProduct uint32 }

func (r *Reader) vgpuCard(gpu *machine.Device, functions []machine.Address) (c vgpuCard, err error) {
	c.names = map[string]string{}
	c.ids = productIDs{vendor: uint32(gpu.Vendor), product: uint32(gpu.Product)}
	at := pciDevices + "/" + gpu.Address.String()
	for name, to := range map[string]*uint32{
		"subsystem_vendor": &c.ids.subVendor, "subsystem_device": &c.ids.subProduct,
	} {
		if *to, err = value(r.root, at+"/"+name, hexadecimal(16)); err != nil && !absent(err) {
			return c, err
		}
	}
	for _, address := range functions {
		f := machine.VGPUFunction{Address: address}
		has, err := value(r.root, machine.VGPUFile(address, machine.CurrentVGPUType), number)
		if err != nil {
			return c, err
		}
		if has != 0 {
			f.Type = machine.VGPUTypeID(has)
		} else {
			f.Creatable, err = r.creatable(machine.VGPUFile(address, machine.CreatableVGPUTypes), c.names)
		}
		if err != nil {
			return c, err
		}
		c.functions = append(c.functions, f)
	}
	slices.SortFunc(c.functions, func(a, b machine.VGPUFunction) int { return a.Address.Compare(b.Address) })
	return c, nil
}

// creatable reads the types that a function can get, and adds their names. A GPU on which nothing
// fits any more prints the heading alone.
func (r *Reader) creatable(name string, names map[string]string) ([]string, error) {
	text, err := r.root.Text(name)
	if err != nil {
		return nil, err
	}
	var ids []string
	for l := range strings.Lines(text) {
		id, called, found := strings.Cut(strings.TrimSpace(l), ":")
		id, called = strings.TrimSpace(id), strings.TrimSpace(called)
		if id == "" && !found || id == "ID" {
			continue
		}
		n, err := number(id)
		if err != nil || n == 0 || called == "" || len(ids) >= maxVGPUTypes {
			return nil, malformed(r.root, name, strings.TrimSpace(l), "not the number and name of a vGPU type")
		}
		ids = append(ids, machine.VGPUTypeID(n))
		names[machine.VGPUTypeID(n)] = called
	}
	return ids, nil
}

// describe fills in what the parent can make and what it has.
func (c vgpuCard) describe(p *MdevParent, config map[string]vgpuSize, want func(string) bool) {
	p.Functions = c.functions
	known := map[string]bool{}
	for _, f := range c.functions {
		if f.Type != "" {
			known[f.Type] = true
			p.Mdevs = append(p.Mdevs, machine.Mdev{UUID: f.Address.String(), Type: f.Type, Active: true})
		}
	}
	for id := range c.names {
		known[id] = true
	}
	for id := range config {
		known[id] = true
	}
	for id := range known {
		if want != nil && !want(id) {
			p.Others = append(p.Others, id)
			continue
		}
		t := machine.MdevType{ID: id, Name: c.names[id], API: vgpuAPI, Available: c.available(id, config)}
		if size, found := config[id]; found {
			t.Name, t.Description = size.name, size.description()
		}
		p.Types = append(p.Types, t)
	}
	slices.Sort(p.Others)
	slices.SortFunc(p.Types, func(a, b machine.MdevType) int { return strings.Compare(a.ID, b.ID) })
}

// available is how many vGPUs of a type can certainly be made: one if the kernel says so, more
// where it is known how many fit and nothing of another size is, or may come, in the way. A GPU
// that offers several sizes beside what it has is heterogeneous: fewer of each fit then, and no
// file says how many.
func (c vgpuCard) available(id string, config map[string]vgpuSize) int {
	free, made, alike := 0, 0, true
	for _, f := range c.functions {
		switch {
		case f.Type != "":
			made++
			alike = alike && config[f.Type].framebuffer == config[id].framebuffer
		case slices.Contains(f.Creatable, id):
			free++
		}
	}
	for other := range c.names {
		alike = alike && (made == 0 || config[other].framebuffer == config[id].framebuffer)
	}
	if fit := config[id].fit; fit > 0 && alike {
		return min(free, max(1, fit-made))
	}
	return min(free, 1)
}

// vgpuSize is what vgpuConfig.xml says of a type on a GPU.
type vgpuSize struct {
	name string
	// framebuffer is in bytes.
	framebuffer uint64
	heads       int
	width       int
	height      int
	// fit is how many fit on the GPU.
	fit int
}

// description says it in the words of NVIDIA's mediated devices.
func (s vgpuSize) description() string {
	return fmt.Sprintf("num_heads=%d, framebuffer=%dM, max_resolution=%dx%d, max_instance=%d",
		s.heads, s.framebuffer>>20, s.width, s.height, s.fit)
}

// vgpuConfig is what is read of vgpuConfig.xml. The zero value knows nothing.
type vgpuConfig struct {
	Types []struct {
		ID          string `xml:"id,attr"`
		Name        string `xml:"name,attr"`
		Framebuffer string `xml:"framebuffer"`
		Heads       string `xml:"numHeads"`
		Display     struct {
			Width  string `xml:"width,attr"`
			Height string `xml:"height,attr"`
		} `xml:"display"`
	} `xml:"vgpuType"`
	GPUs []struct {
		IDs struct {
			Vendor     string `xml:"vendorId,attr"`
			Product    string `xml:"deviceId,attr"`
			SubVendor  string `xml:"subsystemVendorId,attr"`
			SubProduct string `xml:"subsystemId,attr"`
		} `xml:"devId"`
		Types []struct {
			ID  string `xml:"vgpuId,attr"`
			Fit string `xml:"maxVgpus"`
		} `xml:"supportedVgpu"`
	} `xml:"pgpu"`
}

// vgpuConfig reads the file. One that is missing or makes no sense says nothing: it is another
// program's, and the kernel's files are enough for one vGPU after another.
func (r *Reader) vgpuConfig() *vgpuConfig {
	c := &vgpuConfig{}
	text, err := r.root.Text(vgpuConfigFile)
	if err != nil || xml.Unmarshal([]byte(text), c) != nil {
		return &vgpuConfig{}
	}
	return c
}

// sizes returns the sizes of a GPU's types, by ID. An entry for its subsystem goes before one for
// all.
func (c *vgpuConfig) sizes(gpu productIDs) map[string]vgpuSize {
	best, exact := -1, false
	for i := range c.GPUs {
		ids := c.GPUs[i].IDs
		if xmlNumber(ids.Vendor) != uint64(gpu.vendor) || xmlNumber(ids.Product) != uint64(gpu.product) {
			continue
		}
		sub := xmlNumber(ids.SubProduct)
		switch {
		case sub == uint64(gpu.subProduct) && sub != 0 && xmlNumber(ids.SubVendor) == uint64(gpu.subVendor):
			best, exact = i, true
		case sub == 0 && !exact:
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	fit := map[uint64]int{}
	for _, t := range c.GPUs[best].Types {
		fit[xmlNumber(t.ID)] = int(min(xmlNumber(t.Fit), maxVGPUTypes))
	}
	out := map[string]vgpuSize{}
	for _, t := range c.Types {
		n := xmlNumber(t.ID)
		if fit[n] == 0 || n > 1<<20 {
			continue
		}
		out[machine.VGPUTypeID(int(n))] = vgpuSize{
			name: t.Name, framebuffer: xmlNumber(t.Framebuffer), fit: fit[n],
			heads: int(min(xmlNumber(t.Heads), 1<<10)),
			width: int(min(xmlNumber(t.Display.Width), 1<<20)), height: int(min(xmlNumber(t.Display.Height), 1<<20)),
		}
	}
	return out
}

// xmlNumber reads a number as the file has them, decimal or with 0x; 0 if it is not one.
func xmlNumber(text string) uint64 {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 0, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return n
}
