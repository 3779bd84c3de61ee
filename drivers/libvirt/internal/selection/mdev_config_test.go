// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// configureMdevs reads a configuration the way the driver does.
func configureMdevs(t testing.TB, text string) (MdevTypes, error) {
	var c MdevConfig
	testproc.Check(t, plugins.DecodeConfig(json.RawMessage(text), &c))
	return ParseMdevs(c)
}

func TestWrongTypes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const a = `{"enabled_mdev_types": ["a"], "mdev_types": {"a": `
	for text, want := range map[string]string{
		`{"enabled_mdev_types": [""]}`: `enabled_mdev_types[0]: "" is not a ` +
			`mediated device type such as nvidia-222`,
		`{"enabled_mdev_types": ["a", "b/c"]}`: `enabled_mdev_types[1]: "b/c" is not a ` +
			`mediated device type such as nvidia-222`,
		`{"enabled_mdev_types": ["a", "b", "a"]}`: `enabled_mdev_types[2]: "a" is in the ` +
			`list already`,
		`{"enabled_mdev_types": ["a"], "mdev_types": {"b": {}}}`: `mdev_types."b": names a type that is not ` +
			`in enabled_mdev_types`,
		a + `{"device_addresses": ["0000:82:00.0", "82:00.0"]}}}`: `mdev_types."a".device_addresses[1]: ` +
			`"82:00.0" is not a PCI address such as 0000:82:00.0`,
		a + `{"device_addresses": ["pci_0000_82_00"]}}}`: `mdev_types."a".device_addresses[0]: ` +
			`"pci_0000_82_00" is not a PCI device name such as pci_0000_82_00_0`,
		a + `{"device_addresses": ["my gpu"]}}}`: `mdev_types."a".device_addresses[0]: "my ` +
			`gpu" is neither a PCI address such as 0000:82:00.0 nor libvirt's name of a device`,
		a + `{"device_addresses": ["0000:82:00.0", "0000:82:00.0"]}}}`: `mdev_types."a".device_addresses[1]: ` +
			`pci_0000_82_00_0 is already configured for type a; a device can have one type only`,
		`{"enabled_mdev_types": ["b", "a"], "mdev_types": {"a": {"device_addresses": ["pci_0000_82_00_0"]}, "b": ` +
			`{"device_addresses": ["0000:82:00.0"]}}}`: `mdev_types."a".device_addresses[0]: ` +
			`pci_0000_82_00_0 is already configured for type b; a device can have one type only`,
		a + `{"mdev_class": "PGPU"}}}`: `mdev_types."a".mdev_class: "PGPU" is neither VGPU nor a custom ` +
			`resource class such as CUSTOM_FAST_VGPU (A-Z, 0-9 and _)`,
		a + `{"mdev_class": "custom_x"}}}`: `mdev_types."a".mdev_class: "custom_x" is neither VGPU nor a custom ` +
			`resource class such as CUSTOM_FAST_VGPU (A-Z, 0-9 and _)`,
		a + `{"mdev_class": "CUSTOM_"}}}`: `mdev_types."a".mdev_class: "CUSTOM_" is neither VGPU nor a custom ` +
			`resource class such as CUSTOM_FAST_VGPU (A-Z, 0-9 and _)`,
		a + `{"max_instances": -1}}}`: `mdev_types."a".max_instances: -1 must be 1 or more, or 0 for no limit`,
		a + `{"traits": ["CUSTOM_a b"]}}}`: `mdev_types."a".traits: trait name "CUSTOM_A B": only A-Z, 0-9 and _ ` +
			`are allowed`,
	} {
		_, err := configureMdevs(t, text)
		var wrong *plugins.ConfigError
		if want = "configuration: " + want; !errors.As(err, &wrong) || err.Error() != want {
			t.Errorf("%s: %v, want\n%s", text, err, want)
		}
	}
	if _, err := ParseMdevs(MdevConfig{EnabledTypes: []string{strings.Repeat("x", 201)}}); err == nil {
		t.Error("a name of 201 characters is a type")
	}
}

func FuzzDeviceName(f *testing.F) {
	for _, s := range []string{"0000:82:00.0", "pci_0000_82_00_0", "mtty_mtty", "",
		"82:00.0", "pci_", "10000:e1:00.0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, err := deviceName(s)
		if err != nil {
			return
		}
		if again, err := deviceName(name); err != nil || again != name {
			t.Fatalf("%q is %q, which is %q, %v", s, name, again, err)
		}
	})
}
