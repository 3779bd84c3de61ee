// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// configurePCI reads a configuration the way the driver does.
func configurePCI(text string) (PCISpecs, error) {
	var c PCIConfig
	if err := plugins.DecodeConfig(json.RawMessage(text), &c); err != nil {
		return PCISpecs{}, err
	}
	return ParsePCI(c)
}

func reported(specs string) string {
	return `{"pci_report_in_placement": true, "pci_device_spec": [` + specs + `]}`
}

func TestWrongSpecs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for spec, want := range map[string]string{
		`{"devname": "eth0"}`: `devname: devices in Placement cannot be named by their interface ` +
			`("eth0"); give its PCI address (address)`,
		`{"vendor_id": "15bg"}`: `vendor_id: "15bg" is neither a hexadecimal number up to ffff nor "*"`,
		`{"vendor_id": "-1"}`:   `vendor_id: "-1" is neither a hexadecimal number up to ffff nor "*"`,
		`{"product_id": "10000"}`: `product_id: "10000" is neither a hexadecimal number up to ` +
			`ffff nor "*"`,
		`{"class": "3"}`: `class: "3" is not a PCI class of 2, 4 or 6 hexadecimal digits ` +
			`such as 0x03 or 0x0302`,
		`{"class": "0x03020000"}`: `class: "0x03020000" is not a PCI class of 2, 4 or 6 hexadecimal ` +
			`digits such as 0x03 or 0x0302`,
		`{"address": 7}`: `address: is neither a text such as "0000:06:*.*" nor a table with ` +
			`domain, bus, slot and function`,
		`{"address": "0:0000:06:00.0"}`: `address: "0:0000:06:00.0" has more than domain, bus and slot ` +
			`before the dot`,
		`{"address": "0000:6x:00.0"}`: `address: "0000:6x:00.0": the bus "6x" is neither a hexadecimal ` +
			`number up to ff nor "*"`,
		`{"address": "0000:0*:00.0"}`: `address: "0000:0*:00.0": the bus "0*" is neither a hexadecimal ` +
			`number up to ff nor "*"`,
		`{"address": "06:20.0"}`: `address: "06:20.0": the slot "20" is neither a hexadecimal number ` +
			`up to 1f nor "*"`,
		`{"address": "06:00.8"}`: `address: "06:00.8": the function "8" is neither a hexadecimal ` +
			`number up to 7 nor "*"`,
		`{"address": {"func": "0"}}`: `address: "func" is not a part of an address (domain, bus, ` +
			`slot, function)`,
		`{"address": {"bus": 6}}`:    `address: the bus must be a text with a regular expression`,
		`{"address": {"bus": null}}`: `address: the bus must be a text with a regular expression`,
		`{"address": {"bus": "(0"}}`: "address: the bus is not a valid regular expression (lookahead and " +
			"back references are not supported): error parsing regexp: missing closing ): `(0`",
		`{"resource_class": "CUSTOM_A B"}`: `resource_class: resource class name "CUSTOM_A B": only A-Z, 0-9 ` +
			`and _ are allowed`,
		`{"traits": 3}`: `traits: is neither a list of names nor a text with commas ` +
			`between them`,
		`{"traits": ["CUSTOM_Ö"]}`:              `traits: trait name "CUSTOM_Ö": only A-Z, 0-9 and _ are allowed`,
		`{"one_time_use": "perhaps"}`:           `one_time_use: "perhaps" is neither true nor false`,
		`{"managed": 1}`:                        `managed: 1 is neither true nor false`,
		`{"live_migratable": []}`:               `live_migratable: [] is neither true nor false`,
		`{"remote_managed": "x", "trusted": 1}`: `remote_managed: "x" is neither true nor false`,
		`{"trusted": {}}`:                       `trusted: {} is neither true nor false`,
	} {
		_, err := configurePCI(reported(`{"vendor_id": "*"}, ` + spec))
		var wrong *plugins.ConfigError
		if want = "configuration: pci_device_spec[1]." + want; !errors.As(err, &wrong) || err.Error() != want {
			t.Errorf("%s: %v, want\n%s", spec, err, want)
		}
	}
	for text, want := range map[string]string{
		`{"pci_device_spec": [{"one_time_use": "yes"}]}`: `configuration: pci_device_spec[0].one_time_use: needs ` +
			`pci_report_in_placement = true: only Placement can record that the device was used`,
		reported(`{}` + strings.Repeat(`,{}`,
			1000)): `configuration: pci_device_spec: has 1001 entries; the limit is 1000`,
		reported(`{"vendor": "15b3"}`): `configuration: pci_device_spec[0].vendor: is not a key of this driver`,
		reported(`{"address": {"bus": "` +
			strings.Repeat("0", 300) +
			`"}}`): `configuration: pci_device_spec[0].address: the expression of the bus has 300 characters; the ` +
			`limit is 256`,
	} {
		if _, err := configurePCI(text); err == nil || err.Error() != want {
			t.Errorf("%.60s: %v, want\n%s", text, err, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	all := []string{"0000:06:00.0", "0000:06:00.1", "0000:06:10.1", "0000:07:00.0", "0001:06:00.0", "10000:06:00.0"}
	for spec, want := range map[string]string{
		`null`: "0 1 2 3 4 5", `""`: "0 1 2 3 4 5", `"*:*:*.*"`: "0 1 2 3 4 5", `"."`: "0 1 2 3 4 5",
		`"0000:06:*.*"`: "0 1 2", `"*:06:00.*"`: "0 1 4 5",
		`":06:00."`: "0 1 4 5", `"06:00.0"`: "0 4 5", `"0:6:0.0"`: "0", `"10."`: "2", `".1"`: "1 2",
		`" 0000 : 06 : 00 . 1 "`: "1", `"10000:*:*.*"`: "5", `"0000:06:00"`: "0 1",
		`{}`: "0 1 2 3 4 5", `{"bus": "06", "slot": "0[0-1]"}`: "0 1 4 5",
		`{"domain": "0", "function": "[1-7]"}`: "1 2",
		`{"domain": "1000"}`:                   "5", `{"bus": "6"}`: "", `{"bus": "0"}`: "0 1 2 3 4 5",
		`{"bus": "06|07", "domain": "0000"}`: "0 1 2 3", `{"slot": "10", "bus": "06"}`: "2",
	} {
		m, err := parseAddress(json.RawMessage(spec))
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		var got []string
		for i, text := range all {
			a := testproc.Try(machine.ParseAddress(text)).Or(t)
			if m.match(a) {
				got = append(got, fmt.Sprint(i))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s matches %v, want %s", spec, got, want)
		}
	}
}

// TestWholeAddresses: one address in either form is that address and no other, and is known to be
// one.
func TestWholeAddresses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	address := rapid.Custom(func(t *rapid.T) machine.Address {
		return machine.Address{
			Domain: rapid.SampledFrom([]uint32{0, 1, 0x10000}).Draw(t, "domain"),
			Bus:    rapid.Uint8Range(0, 0x11).Draw(t, "bus"),
			Slot:   rapid.Uint8Range(0, 0x1f).Draw(t, "slot"), Function: rapid.Uint8Range(0, 7).Draw(t, "function"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := address.Draw(t, "a"), address.Draw(t, "b")
		table := fmt.Sprintf(`{"domain": "%04x", "bus": "%02x", "slot": "%02x", "function": "%x"}`,
			a.Domain, a.Bus, a.Slot, a.Function)
		for _, spec := range []string{fmt.Sprintf("%q", a), table} {
			m, err := parseAddress(json.RawMessage(spec))
			if err != nil || m.single == nil || *m.single != a {
				t.Fatalf("%s: %+v, %v", spec, m, err)
			}
			if !m.match(a) || m.match(b) != (a == b) {
				t.Fatalf("%s: matches %s: %v, %s: %v", spec, a, m.match(a), b, m.match(b))
			}
		}
	})
}

func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{`"0000:06:*.*"`, `":0a:00."`, `{"bus": "0[1-2]"}`, `null`, `"...."`, `"::::"`,
		`{"bus": "(?=x)"}`, `{"bus": "\\"}`, `{"bus": ")|("}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := parseAddress(raw)
		if err != nil {
			return
		}
		m.match(machine.Address{Bus: 6})
		if m.single != nil && len(raw) > 0 && raw[0] == '"' && !m.match(*m.single) {
			t.Fatalf("%s stands for %s alone, but does not match it", raw, m.single)
		}
	})
}
