// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// usable is a namespace that a guest can have.
func usable(name, label string) machine.Namespace {
	return machine.Namespace{Name: name, Label: label, Mode: machine.ModeDAX, Bytes: 4 << 30, Device: "/dev/dax" +
		strings.TrimPrefix(name, "namespace"), Driver: "device_dax"}
}

func TestChoosePMEM(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	with := func(n machine.Namespace, change func(*machine.Namespace)) machine.Namespace {
		change(&n)
		return n
	}
	for name, tc := range map[string]struct {
		config              []string
		found               []machine.Namespace
		want, discrepancies []string
	}{
		"nothing configured": {found: []machine.Namespace{usable("namespace0.0", "ns0")}},
		"two classes": {
			config: []string{"B:ns2|ns0", "A:ns1"},
			found: []machine.Namespace{usable("namespace0.0", "ns0"), usable("namespace0.1", "ns1"),
				usable("namespace1.0", "ns2"), usable("namespace1.1", "other"), usable("namespace2.0", "")},
			want: []string{"CUSTOM_PMEM_NAMESPACE_A /dev/dax0.1", "CUSTOM_PMEM_NAMESPACE_B /dev/dax1.0 /dev/dax0.0"},
		},
		"a missing one": {
			config: []string{"A:ns0|ns1"}, found: []machine.Namespace{usable("namespace0.0", "ns0")},
			want: []string{"CUSTOM_PMEM_NAMESPACE_A /dev/dax0.0"},
			discrepancies: []string{"pmem-ns1: pmem_namespaces: namespace \"ns1\" is not on this host and is not " +
				"reported. Compare with the names that `ndctl list --idle` shows"},
		},
		"the kernel's name is not the name": {
			config: []string{"A:namespace0.0"}, found: []machine.Namespace{usable("namespace0.0", "ns0")},
			discrepancies: []string{"pmem-namespace0.0: pmem_namespaces: namespace \"namespace0.0\" is not on this " +
				"host and is not reported. Compare with the names that `ndctl list --idle` shows"},
		},
		"other modes, no device, no driver, the host's own": {
			config: []string{"A:a|b|c|d|e|f"},
			found: []machine.Namespace{
				with(usable("namespace0.0", "a"), func(n *machine.Namespace) { n.Mode = machine.ModeMemory }),
				with(usable("namespace0.1", "b"), func(n *machine.Namespace) { n.Mode = machine.ModeSafe }),
				with(usable("namespace0.2", "c"), func(n *machine.Namespace) { n.Mode = machine.ModeRaw }),
				with(usable("namespace0.3", "d"), func(n *machine.Namespace) { n.Device, n.Driver = "", "" }),
				with(usable("namespace0.4", "e"), func(n *machine.Namespace) { n.Driver = "" }),
				with(usable("namespace0.5", "f"), func(n *machine.Namespace) { n.Driver = "kmem" }),
			},
			discrepancies: []string{
				"pmem-a: pmem_namespaces: namespace \"a\" (namespace0.0) is in mode fsdax, not devdax, and is not " +
					"reported. Recreate it with `ndctl create-namespace --mode=devdax`, which loses its data",
				"pmem-b: pmem_namespaces: namespace \"b\" (namespace0.1) is in mode sector, not devdax, and is not " +
					"reported. Recreate it with `ndctl create-namespace --mode=devdax`, which loses its data",
				"pmem-c: pmem_namespaces: namespace \"c\" (namespace0.2) is in mode raw, not devdax, and is not " +
					"reported. Recreate it with `ndctl create-namespace --mode=devdax`, which loses its data",
				"pmem-d: pmem_namespaces: namespace \"d\" (namespace0.3) has no character device and is not " +
					"reported. Enable it with `ndctl enable-namespace`",
				"pmem-e: pmem_namespaces: namespace \"e\" (namespace0.4) has /dev/dax0.4, which has no driver, and " +
					"is not reported. Enable it with `daxctl enable-device`",
				"pmem-f: pmem_namespaces: namespace \"f\" (namespace0.5) has /dev/dax0.5, which is the host's own " +
					"(driver kmem), and is not reported. Give it back with `daxctl reconfigure-device --mode=devdax`",
			},
		},
		"a name for two": {
			config: []string{"A:ns0"},
			found: []machine.Namespace{
				with(usable("namespace0.0", "ns0"), func(n *machine.Namespace) { n.Mode = machine.ModeRaw }),
				usable("namespace0.1", "ns0"), usable("namespace1.0", "ns0"),
			},
			want: []string{"CUSTOM_PMEM_NAMESPACE_A /dev/dax0.1"},
			discrepancies: []string{"pmem-ns0: pmem_namespaces: namespace \"ns0\" is the name of 3 namespaces: only " +
				"namespace0.1 is reported. Give them unique names"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := testproc.Try(configurePMEM(t, tc.config...)).Or(t)
			pools, discrepancies := l.Choose(tc.found)
			var got, texts []string
			for _, p := range pools {
				text := p.Class
				for _, n := range p.Namespaces {
					text += " " + n.Device
				}
				got = append(got, text)
			}
			for _, d := range discrepancies {
				texts = append(texts, d.Key+": "+d.Text)
			}
			testproc.Samef(t, cmp.Diff(tc.want, got), "pools")
			testproc.Samef(t, cmp.Diff(tc.discrepancies, texts), "discrepancies")
		})
	}
}

// TestEachNameIsReportedOrADiscrepancy: whatever there is: each configured name counts once in its
// class, or has a discrepancy; a device is given away once; nothing else counts.
func TestEachNameIsReportedOrADiscrepancy(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		var names []string
		for i := range rapid.IntRange(1, 8).Draw(t, "names") {
			names = append(names, fmt.Sprintf("ns%d", i))
		}
		var entries []string
		classOf := map[string]string{}
		for _, name := range names {
			label := rapid.SampledFrom([]string{"A", "B", "C"}).Draw(t, "label")
			entries = append(entries, label+":"+name)
			classOf[name] = "CUSTOM_PMEM_NAMESPACE_" + label
		}
		l := testproc.Try(ParsePMEM(PMEMConfig{PMEMNamespaces: entries})).Or(t)
		var found []machine.Namespace
		good := map[string]int{}
		for i := range rapid.IntRange(0, 12).Draw(t, "found") {
			n := usable(fmt.Sprintf("namespace0.%d", i),
				rapid.SampledFrom(append(names, "", "unmanaged")).Draw(t, "name"))
			if rapid.IntRange(0, 3).Draw(t, "good") == 0 {
				n.Driver = rapid.SampledFrom([]string{"", "kmem"}).Draw(t, "driver")
			} else {
				good[n.Label]++
			}
			found = append(found, n)
		}
		pools, discrepancies := l.Choose(found)
		reported := map[string]bool{}
		for _, d := range discrepancies {
			if reported[d.Key] {
				t.Fatalf("two discrepancies are called %s", d.Key)
			}
			reported[d.Key] = true
		}
		want := map[string]int64{}
		for _, name := range names {
			if good[name] > 0 {
				want[classOf[name]]++
			}
			if good[name] == 0 && !reported["pmem-"+name] || good[name] > 1 && !reported["pmem-"+name] {
				t.Fatalf("%s is there %d times, without a discrepancy", name, good[name])
			}
		}
		if diff := cmp.Diff(want, PMEMTotals(pools)); diff != "" {
			t.Fatalf("totals (-want +got):\n%s", diff)
		}
		var devices []string
		for _, p := range pools {
			for _, n := range p.Namespaces {
				if classOf[n.Label] != p.Class {
					t.Fatalf("%+v is in %s", n, p.Class)
				}
				devices = append(devices, n.Device)
			}
		}
		slices.Sort(devices)
		if len(slices.Compact(slices.Clone(devices))) != len(devices) {
			t.Fatalf("a device is given away twice: %v", devices)
		}
	})
}

// configurePMEM reads a configuration the way the driver does.
func configurePMEM(t testing.TB, entries ...string) (PMEMLabels, error) {
	text := testproc.Try(json.Marshal(map[string][]string{PMEMNamespacesKey: entries})).Or(t)
	var c PMEMConfig
	testproc.Check(t, plugins.DecodeConfig(text, &c))
	return ParsePMEM(c)
}

func TestParse(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, tc := range map[string]struct {
		entries []string
		want    map[string][]string
	}{
		"nothing": {nil, map[string][]string{}},
		"Nova's documentation": {[]string{"128G:ns0|ns1|ns2|ns3", "262144MB:ns4|ns5", "MEDIUM:ns6|ns7"},
			map[string][]string{"128G": {"ns0", "ns1", "ns2", "ns3"},
				"262144MB": {"ns4", "ns5"}, "MEDIUM": {"ns6", "ns7"}}},
		"one label twice": {[]string{"A:ns1", "A:ns0"}, map[string][]string{"A": {"ns1", "ns0"}}},
		"labels of one class": {[]string{"fast-16g:ns1", "FAST.16G:ns0"},
			map[string][]string{"FAST_16G": {"ns1", "ns0"}}},
		"space around the entry": {[]string{" A:ns 1 "}, map[string][]string{"A": {"ns 1"}}},
		"a name with a colon":    {[]string{"A:ns:1"}, map[string][]string{"A": {"ns:1"}}},
		"a label with space":     {[]string{"my label :ns1"}, map[string][]string{"MY_LABEL_": {"ns1"}}},
		"the longest name": {[]string{"A:" + strings.Repeat("ü", 31) + "x"},
			map[string][]string{"A": {strings.Repeat("ü", 31) + "x"}}},
	} {
		t.Run(name, func(t *testing.T) {
			l := testproc.Try(configurePMEM(t, tc.entries...)).Or(t)
			want := map[string][]string{}
			for label, names := range tc.want {
				want["CUSTOM_PMEM_NAMESPACE_"+label] = names
			}
			testproc.Same(t, cmp.Diff(want, l.names))
			if !slices.IsSorted(l.classes) || len(l.classes) != len(want) || l.Configured() != (len(want) > 0) {
				t.Errorf("classes %v", l.classes)
			}
		})
	}
}

func TestWrongNamespaces(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	long := strings.Repeat("n", 64)
	for _, tc := range []struct {
		want    string
		entries []string
	}{
		{`[0]: "" is not a label with names of namespaces, such as "SMALL:ns0|ns1"`, []string{""}},
		{`[1]: "ns0|ns1" is not a label with names of namespaces, such as "SMALL:ns0|ns1"`,
			[]string{"A:ns2", "ns0|ns1"}},
		{`[0]: "" is not a label such as SMALL or 128G (ASCII, with a letter or a digit)`, []string{":ns0"}},
		{`[0]: "--" is not a label such as SMALL or 128G (ASCII, with a letter or a digit)`, []string{"--:ns0"}},
		{`[0]: "groß" is not a label such as SMALL or 128G (ASCII, with a letter or a digit)`, []string{"groß:ns0"}},
		{`[0]: has an empty name of a namespace`, []string{"A:"}},
		{`[0]: has an empty name of a namespace`, []string{"A:ns0||ns1"}},
		{`[0]: " ns0" is not a namespace name: there is space around it`, []string{"A: ns0"}},
		{`[0]: "ns\n0" is not a namespace name: it has a control character`, []string{"A:ns\n0"}},
		{`[0]: "` + long[:60] + `"... is not a namespace name: it has 64 bytes; the limit is 63`,
			[]string{"A:" + long}},
		{`[0]: "ns0,B:ns1" has a comma: write each label with its namespaces as a separate list element`,
			[]string{"A:ns0,B:ns1"}},
		{`[0]: namespace "ns0" is in the list already`, []string{"A:ns0|ns0"}},
		{`[1]: namespace "ns0" is in the list already`, []string{"A:ns0", "B:ns1|ns0"}},
	} {
		_, err := configurePMEM(t, tc.entries...)
		var wrong *plugins.ConfigError
		if want := "configuration: pmem_namespaces" + tc.want; !errors.As(err, &wrong) || err.Error() != want {
			t.Errorf("%q: %v, want\n%s", tc.entries, err, want)
		}
	}
	if _, err := configurePMEM(t, strings.Repeat("L", 300)+":ns0"); err == nil {
		t.Error("a label too long for a resource class is one")
	}
	var many []string
	for i := range maxPMEMNames + 1 {
		many = append(many, fmt.Sprintf("ns%d", i))
	}
	if _, err := configurePMEM(t, "A:"+strings.Join(many, "|")); err == nil {
		t.Error("there is no end of namespaces")
	}
	if _, err := configurePMEM(t, "A:"+strings.Join(many[1:], "|")); err != nil {
		t.Error(err)
	}
}

// FuzzParseEntry: what is taken is a class that Placement takes, and names that the kernel takes;
// and it says the same when it is written again.
func FuzzParseEntry(f *testing.F) {
	for _, s := range []string{"SMALL:ns0|ns1", "128G:ns0",
		"A:ns:1", "", ":", "A:|", " A:b ", "A:b,c", "ß:x", "A:ns0|ns0", "A: b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		class, names, err := parsePMEMEntry(s)
		if err != nil {
			return
		}
		testproc.Checkf(t, providertree.ValidateClass(class), "%q", s)
		for _, name := range names {
			if name == "" || len(name) > machine.MaxPMEMLabel || strings.TrimSpace(name) != name {
				t.Fatalf("%q has the name %q", s, name)
			}
		}
		again := strings.TrimPrefix(class, "CUSTOM_"+pmemClassPrefix) + ":" + strings.Join(names, "|")
		class2, names2, err := parsePMEMEntry(again)
		if err != nil || class2 != class || !slices.Equal(names2, names) {
			t.Fatalf("%q is %s %q, and that is %s %q, %v", s, class, names, class2, names2, err)
		}
	})
}
