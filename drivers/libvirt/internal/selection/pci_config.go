// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/plugins"
)

// PCI devices: which of them guests may be given whole, and which resource providers they become.
// The options are Nova's [pci] device_spec and report_in_placement; providers are named, and
// devices counted, as Nova does it:
//
//	device                        provider               total
//	a plain device                its own, <node>_<ADDR>  1
//	a physical function (SR-IOV)  its own                 1
//	virtual functions             that of their physical  as many as there are
//	                              function
//
// A device is governed by the first spec that matches it. A physical function and its virtual
// functions are never both given away.

// Names of the configuration's keys.
const (
	PCIReportKey = "pci_report_in_placement"
	PCISpecKey   = "pci_device_spec"
)

// Traits that Nova gives to the providers of PCI devices.
const (
	TraitManaged        = "COMPUTE_MANAGED_PCI_DEVICE"
	TraitLiveMigratable = "HW_PCI_LIVE_MIGRATABLE"
	TraitOneTimeUse     = "HW_PCI_ONE_TIME_USE"
)

// maxSpecs bounds the list of specs: a pass compares each with each device.
const maxSpecs = 1000

// PCIConfig are the keys about PCI devices in the driver's configuration.
type PCIConfig struct {
	// ReportPCI: the devices become providers. Without it nothing is reported, as in Nova.
	ReportPCI bool      `json:"pci_report_in_placement"`
	PCISpecs  []PCISpec `json:"pci_device_spec"`
}

// PCISpec is a device spec as it is written. Every key may be left out. Flags are true, false, or
// one of Nova's words for them ("yes", "false"); traits are a list, or Nova's text with commas.
type PCISpec struct {
	// VendorID and ProductID are hexadecimal, or "*".
	VendorID  string `json:"vendor_id"`
	ProductID string `json:"product_id"`
	// Address is a text with wildcards ("*:06:00.*", ":0a:00.") or a table of regular expressions
	// (domain, bus, slot, function).
	Address json.RawMessage `json:"address"`
	// DevName is known only to be refused, as Nova does for devices in Placement.
	DevName string `json:"devname"`
	// Class is the PCI class in 2, 4 or 6 hexadecimal digits: "0x03" are all displays. Nova has no
	// such key.
	Class string `json:"class"`
	// PhysicalNetwork makes the devices Neutron's: they are not reported.
	PhysicalNetwork string `json:"physical_network"`
	// Trusted is for Neutron alone, and here so that specs can be carried over.
	Trusted json.RawMessage `json:"trusted"`
	// RemoteManaged devices are virtual functions whose other side is at a network card's own
	// processor.
	RemoteManaged json.RawMessage `json:"remote_managed"`
	// ResourceClass is Default: CUSTOM_PCI_<vendor>_<product>.
	ResourceClass  string          `json:"resource_class"`
	Traits         json.RawMessage `json:"traits"`
	LiveMigratable json.RawMessage `json:"live_migratable"`
	OneTimeUse     json.RawMessage `json:"one_time_use"`
	// Managed (the default) leaves it to libvirt to bind the device to vfio-pci.
	Managed json.RawMessage `json:"managed"`
}

// PCISpecs are parsed device specs, in the order of the configuration.
type PCISpecs struct {
	report bool
	list   []spec
}

type spec struct {
	index           int
	vendor, product *uint16 // nil: any
	address         matcher
	classPrefix     uint32
	classBits       int // how many of the device's class count, from the top
	network         string
	remote          bool
	resourceClass   string // "" for the default
	traits          []string
	oneTime         bool
	managed         bool
}

func (s spec) key() string { return fmt.Sprintf("%s[%d]", PCISpecKey, s.index) }

func (s spec) configError(key, format string, args ...any) error {
	at := s.key()
	if key != "" {
		at += "." + key
	}
	return &plugins.ConfigError{Key: at, Problem: fmt.Sprintf(format, args...)}
}

// ParsePCI reads the configuration, as far as that is possible without a host. Errors are
// [*plugins.ConfigError].
func ParsePCI(c PCIConfig) (PCISpecs, error) {
	if len(c.PCISpecs) > maxSpecs {
		return PCISpecs{}, &plugins.ConfigError{Key: PCISpecKey,
			Problem: fmt.Sprintf("has %d entries; the limit is %d", len(c.PCISpecs), maxSpecs)}
	}
	specs := PCISpecs{report: c.ReportPCI}
	var wrong []error
	for i, written := range c.PCISpecs {
		s, err := parse(i, written)
		if err == nil && s.oneTime && !c.ReportPCI {
			err = s.configError("one_time_use", "needs %s = true: only Placement can record that the device was used",
				PCIReportKey)
		}
		specs.list, wrong = append(specs.list, s), append(wrong, err)
	}
	if err := plugins.JoinConfig(wrong...); err != nil {
		return PCISpecs{}, err
	}
	return specs, nil
}

func parse(i int, w PCISpec) (spec, error) {
	s := spec{index: i, network: w.PhysicalNetwork}
	if w.DevName != "" {
		return s, s.configError("devname",
			"devices in Placement cannot be named by their interface (%q); give its PCI address (address)", w.DevName)
	}
	var err error
	if s.vendor, err = id(w.VendorID); err != nil {
		return s, s.configError("vendor_id", "%v", err)
	}
	if s.product, err = id(w.ProductID); err != nil {
		return s, s.configError("product_id", "%v", err)
	}
	if s.address, err = parseAddress(w.Address); err != nil {
		return s, s.configError("address", "%v", err)
	}
	if s.classPrefix, s.classBits, err = parseClass(w.Class); err != nil {
		return s, s.configError("class", "%v", err)
	}
	if w.ResourceClass != "" {
		if s.resourceClass, err = extraspecs.ClassName(w.ResourceClass); err != nil {
			return s, s.configError("resource_class", "%v", err)
		}
	}
	if err = s.parseFlags(w); err != nil {
		return s, err
	}
	traits, err := names(w.Traits)
	if err != nil {
		return s, s.configError("traits", "%v", err)
	}
	if traits, err = extraspecs.TraitNames(traits); err != nil {
		return s, s.configError("traits", "%v", err)
	}
	s.traits = append(s.traits, traits...)
	slices.Sort(s.traits)
	s.traits = slices.Compact(s.traits)
	return s, nil
}

func (s *spec) parseFlags(w PCISpec) error {
	var migratable, trusted bool
	for _, f := range []struct {
		key     string
		raw     json.RawMessage
		into    *bool
		missing bool
	}{
		{"remote_managed", w.RemoteManaged, &s.remote, false}, {"one_time_use", w.OneTimeUse, &s.oneTime, false},
		{"managed", w.Managed, &s.managed, true},
		{"live_migratable", w.LiveMigratable, &migratable, false}, {"trusted", w.Trusted, &trusted, false},
	} {
		var err error
		if *f.into, err = flag(f.raw, f.missing); err != nil {
			return s.configError(f.key, "%v", err)
		}
	}
	s.traits = []string{TraitManaged}
	if migratable {
		s.traits = append(s.traits, TraitLiveMigratable)
	}
	if s.oneTime {
		s.traits = append(s.traits, TraitOneTimeUse)
	}
	return nil
}

// id reads a vendor's or product's number.
func id(text string) (*uint16, error) {
	text = strings.TrimSpace(text)
	if text == "" || text == "*" {
		return nil, nil
	}
	n, err := strconv.ParseUint(text, 16, 16)
	if err != nil {
		return nil, fmt.Errorf("%.40q is neither a hexadecimal number up to ffff nor \"*\"", text)
	}
	v := uint16(n)
	return &v, nil
}

// parseClass reads a class, or the beginning of one.
func parseClass(text string) (prefix uint32, bits int, err error) {
	if text == "" {
		return 0, 0, nil
	}
	digits := strings.TrimPrefix(strings.ToLower(strings.TrimSpace(text)), "0x")
	n, err := strconv.ParseUint(digits, 16, 24)
	if err != nil || len(digits)%2 != 0 || len(digits) > 6 {
		return 0, 0, fmt.Errorf("%.40q is not a PCI class of 2, 4 or 6 hexadecimal digits such as 0x03 or 0x0302", text)
	}
	return uint32(n), 4 * len(digits), nil
}

// flag reads a boolean or one of Nova's words for one.
func flag(raw json.RawMessage, missing bool) (bool, error) {
	if absent(raw) {
		return missing, nil
	}
	var is bool
	if json.Unmarshal(raw, &is) == nil {
		return is, nil
	}
	var word string
	if err := json.Unmarshal(raw, &word); err == nil {
		switch strings.ToLower(strings.TrimSpace(word)) {
		case "1", "t", "true", "on", "y", "yes":
			return true, nil
		case "0", "f", "false", "off", "n", "no":
			return false, nil
		}
	}
	return false, fmt.Errorf("%.40s is neither true nor false", raw)
}

// names reads a list of names, or a text with commas between them.
func names(raw json.RawMessage) ([]string, error) {
	if absent(raw) {
		return nil, nil
	}
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		return list, nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return strings.Split(text, ","), nil
	}
	return nil, errors.New("is neither a list of names nor a text with commas between them")
}

func absent(raw json.RawMessage) bool { return len(raw) == 0 || bytes.Equal(raw, []byte("null")) }
