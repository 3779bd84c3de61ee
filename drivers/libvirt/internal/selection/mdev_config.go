// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Mediated devices: how many (vGPUs and others) each physical device can give, and of which
// resource class. The options are those of Nova's [devices] and [mdev_*] sections.
//
// A parent (a GPU, a virtual function of one, or a virtual device such as mtty) makes devices of
// one type only: the type that names its address, else the first enabled type that names none. Its
// provider is <node>_<libvirt's name>, as in Nova; its total is what there is of the type on it and
// what can still be made.

// Names of the configuration's keys.
const (
	EnabledMdevTypesKey = "enabled_mdev_types"
	MdevTypesKey        = "mdev_types"
)

// defaultClass is the resource class of a type that names none.
const defaultClass = "VGPU"

// MdevConfig are the keys about mediated devices in the driver's configuration.
type MdevConfig struct {
	// EnabledTypes are libvirt's names of types, nvidia-222 and the like.
	EnabledTypes []string `json:"enabled_mdev_types"`
	// MdevTypes has more about some of them, by name.
	MdevTypes map[string]MdevTypeConfig `json:"mdev_types"`
	// TypeTraits gives each provider traits that follow from its type: its name, and what its GPU
	// can drive.
	TypeTraits bool `json:"mdev_type_traits"`
}

// MdevTypeConfig is a table [drivers.libvirt.config.mdev_types."nvidia-222"], which is Nova's
// section [mdev_nvidia-222].
type MdevTypeConfig struct {
	// DeviceAddresses are the parents that make devices of this type: PCI addresses (0000:82:00.0),
	// or libvirt's names (mtty_mtty).
	DeviceAddresses []string `json:"device_addresses"`
	// MdevClass is VGPU or a custom resource class; VGPU if it is not given.
	MdevClass string `json:"mdev_class"`
	// MaxInstances bounds the devices of this type on the whole host; 0 does not.
	MaxInstances int `json:"max_instances"`
	// Traits are given to the providers of this type.
	Traits []string `json:"traits"`
}

// MdevTypes are the parsed configuration.
type MdevTypes struct {
	byName map[string]*mdevType
	// enabled are the types that count, in the order of the configuration.
	enabled []*mdevType
	// fallback is the type of parents that none names, or nil.
	fallback *mdevType
	// named has the types of parents, by libvirt's name of the device.
	named map[string]*mdevType
	// dropped are types that another one displaced as the fallback.
	dropped []string
}

type mdevType struct {
	name, class string
	// devices are libvirt's names of the parents, as configured.
	devices   []string
	max       int
	traits    []string
	typeTrait string
}

func keyOf(name string) string { return fmt.Sprintf("%s.%q", MdevTypesKey, name) }

func configError(key, format string, args ...any) error {
	return &plugins.ConfigError{Key: key, Problem: fmt.Sprintf(format, args...)}
}

// ParseMdevs reads the configuration, as far as that is possible without a host. Errors are
// [*plugins.ConfigError].
func ParseMdevs(c MdevConfig) (MdevTypes, error) {
	t := MdevTypes{byName: map[string]*mdevType{}, named: map[string]*mdevType{}}
	var all []error
	listed := map[string]bool{}
	for i, name := range c.EnabledTypes {
		key := fmt.Sprintf("%s[%d]", EnabledMdevTypesKey, i)
		twice := listed[name]
		listed[name] = true
		if err := checkTypeName(name); err != nil {
			all = append(all, configError(key, "%v", err))
			continue
		}
		if twice {
			all = append(all, configError(key, "%q is in the list already", name))
			continue
		}
		mt, err := parseType(name, c.MdevTypes[name])
		if err == nil {
			t.byName[name] = mt
			err = t.place(mt)
		}
		all = append(all, err)
	}
	for _, name := range slices.Sorted(maps.Keys(c.MdevTypes)) {
		if !listed[name] {
			all = append(all, configError(keyOf(name), "names a type that is not in %s", EnabledMdevTypesKey))
		}
	}
	if err := plugins.JoinConfig(all...); err != nil {
		return MdevTypes{}, err
	}
	return t, nil
}

// place gives a type its parents: those it names, or all that no type names.
func (t *MdevTypes) place(mt *mdevType) error {
	if len(mt.devices) == 0 {
		if t.fallback != nil {
			t.dropped = append(t.dropped, mt.name)
			return nil
		}
		t.fallback = mt
	}
	t.enabled = append(t.enabled, mt)
	for i, device := range mt.devices {
		if other := t.named[device]; other != nil {
			return configError(fmt.Sprintf("%s.device_addresses[%d]", keyOf(mt.name), i),
				"%s is already configured for type %s; a device can have one type only", device, other.name)
		}
		t.named[device] = mt
	}
	return nil
}

func parseType(name string, c MdevTypeConfig) (*mdevType, error) {
	mt := &mdevType{name: name, class: defaultClass, max: c.MaxInstances, typeTrait: extraspecs.CustomName(name)}
	for i, text := range c.DeviceAddresses {
		device, err := deviceName(text)
		if err != nil {
			return nil, configError(fmt.Sprintf("%s.device_addresses[%d]", keyOf(name), i), "%v", err)
		}
		mt.devices = append(mt.devices, device)
	}
	if c.MdevClass != "" {
		mt.class = c.MdevClass
	}
	if err := providertree.ValidateClass(mt.class); err != nil || mt.class != defaultClass &&
		!providertree.IsCustom(mt.class) {
		return nil, configError(keyOf(name)+".mdev_class",
			"%.60q is neither VGPU nor a custom resource class such as CUSTOM_FAST_VGPU (A-Z, 0-9 and _)", mt.class)
	}
	if c.MaxInstances < 0 || c.MaxInstances > providertree.MaxUnit {
		return nil, configError(keyOf(name)+".max_instances", "%d must be 1 or more, or 0 for no limit", c.MaxInstances)
	}
	var err error
	if mt.traits, err = extraspecs.TraitNames(c.Traits); err != nil {
		return nil, configError(keyOf(name)+".traits", "%v", err)
	}
	return mt, nil
}

// maxTypeName leaves space for the trait with the name.
const maxTypeName = 200

func checkTypeName(name string) error {
	if name == "" || len(name) > maxTypeName ||
		strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' || r == '/' || r == '"' }) {
		return fmt.Errorf("%.60q is not a mediated device type such as nvidia-222", name)
	}
	return nil
}

var virtualName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,199}$`)

// deviceName is libvirt's name of the device that an operator means.
func deviceName(text string) (string, error) {
	text = strings.TrimSpace(text)
	switch {
	case strings.HasPrefix(text, "pci_"):
		a, err := machine.ParseDeviceName(text)
		return a.DeviceName(), err
	case strings.ContainsAny(text, ":."):
		a, err := machine.ParseAddress(text)
		return a.DeviceName(), err
	case !virtualName.MatchString(text):
		return "", fmt.Errorf("%.60q is neither a PCI address such as 0000:82:00.0 nor libvirt's name of a device",
			text)
	}
	return text, nil
}

// Enabled reports whether a type is enabled.
func (t MdevTypes) Enabled(id string) bool {
	return slices.ContainsFunc(t.enabled, func(mt *mdevType) bool { return mt.name == id })
}
