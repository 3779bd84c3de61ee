// SPDX-License-Identifier: Apache-2.0

package testhost

import "fmt"

const (
	ndbus   = "sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI0012:00/ndbus0"
	ndLinks = "sys/bus/nd/devices/"
)

// holders are the devices that claim a namespace, by mode: a device of its region whose kind is the
// mode. One in mode raw has no holder.
var holders = map[string]string{"safe": "btt", "memory": "pfn", "dax": "dax"}

// namespaces writes persistent memory, all of it on one bus.
func (w *writer) namespaces(h Host) {
	regions := map[int]bool{}
	for _, n := range h.Namespaces {
		number, id := n.numbers()
		region := fmt.Sprintf("%s/region%d", ndbus, number)
		if !regions[number] {
			regions[number] = true
			w.link(fmt.Sprintf("%sregion%d", ndLinks, number), region)
			w.file(region+"/numa_node", "%d\n", n.Cell)
		}
		at := region + "/" + n.Name
		w.link(ndLinks+n.Name, at)
		w.file(at+"/size", "%d\n", n.Bytes)
		w.file(at+"/uuid", "%s\n", n.UUID)
		w.file(at+"/alt_name", "%s\n", n.Label)
		w.file(at+"/mode", "%s\n", n.Mode)
		w.file(at+"/numa_node", "%d\n", n.Cell)
		w.file(at+"/force_raw", "0\n")
		holder := ""
		if kind, held := holders[n.Mode]; held {
			holder = fmt.Sprintf("%s%d.%d", kind, number, id)
			w.link(ndLinks+holder, region+"/"+holder)
			w.file(region+"/"+holder+"/namespace", "%s\n", n.Name)
			w.file(region+"/"+holder+"/numa_node", "%d\n", n.Cell)
		}
		w.file(at+"/holder", "%s\n", holder)
		w.disk(n, region, holder)
		w.dax(h, n, region+"/"+holder)
	}
}

// disk writes the block device that a namespace is in all modes but dax.
func (w *writer) disk(n Namespace, region, holder string) {
	if n.Mode == "dax" {
		return
	}
	if holder == "" {
		holder = n.Name
	}
	number, id := n.numbers()
	name := fmt.Sprintf("pmem%d", number)
	if id > 0 {
		name += fmt.Sprintf(".%d", id)
	}
	if n.Mode == "safe" {
		name += "s"
	}
	at := fmt.Sprintf("%s/%s/block/%s", region, holder, name)
	w.file(at+"/size", "%d\n", n.Bytes/512)
	w.link("sys/class/block/"+name, at)
}

// dax writes the character device of a namespace in mode dax, below its holder.
func (w *writer) dax(h Host, n Namespace, holder string) {
	name := n.DAX()
	if name == "" {
		return
	}
	w.file(holder+"/dax_region/align", "2097152\n")
	w.file(holder+"/dax_region/size", "%d\n", n.Bytes)
	if h.DAXClass {
		at := holder + "/dax/" + name
		w.file(at+"/size", "%d\n", n.Bytes)
		w.link("sys/class/dax/"+name, at)
		w.link(at+"/subsystem", "sys/class/dax")
		return
	}
	at := holder + "/" + name
	w.file(at+"/size", "%d\n", n.Bytes)
	w.file(at+"/target_node", "%d\n", n.Cell)
	w.link("sys/bus/dax/devices/"+name, at)
	w.link(at+"/subsystem", "sys/bus/dax")
	for _, driver := range []string{"device_dax", "kmem"} {
		w.mkdir("sys/bus/dax/drivers/" + driver)
	}
	if n.Driver != "" {
		w.link(at+"/driver", "sys/bus/dax/drivers/"+n.Driver)
		w.link("sys/bus/dax/drivers/"+n.Driver+"/"+name, at)
	}
}
