// SPDX-License-Identifier: Apache-2.0

package pmem

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// usable is a namespace that a guest can have.
func usable(name, label string) Namespace {
	return Namespace{Name: name, Label: label, Mode: ModeDAX, Bytes: 4 << 30, Device: "/dev/dax" + strings.TrimPrefix(name, "namespace"), Driver: "device_dax"}
}

func TestChoose(t *testing.T) {
	with := func(n Namespace, change func(*Namespace)) Namespace {
		change(&n)
		return n
	}
	for name, tc := range map[string]struct {
		config       []string
		found        []Namespace
		want, doubts []string
	}{
		"nothing configured": {found: []Namespace{usable("namespace0.0", "ns0")}},
		"two classes": {
			config: []string{"B:ns2|ns0", "A:ns1"},
			found:  []Namespace{usable("namespace0.0", "ns0"), usable("namespace0.1", "ns1"), usable("namespace1.0", "ns2"), usable("namespace1.1", "other"), usable("namespace2.0", "")},
			want:   []string{"CUSTOM_PMEM_NAMESPACE_A /dev/dax0.1", "CUSTOM_PMEM_NAMESPACE_B /dev/dax1.0 /dev/dax0.0"},
		},
		"a missing one": {
			config: []string{"A:ns0|ns1"}, found: []Namespace{usable("namespace0.0", "ns0")},
			want:   []string{"CUSTOM_PMEM_NAMESPACE_A /dev/dax0.0"},
			doubts: []string{"pmem-ns1: pmem_namespaces: namespace \"ns1\" is not on this host: it does not count. Compare with `ndctl list --idle`, where it is the name"},
		},
		"the kernel's name is not the name": {
			config: []string{"A:namespace0.0"}, found: []Namespace{usable("namespace0.0", "ns0")},
			doubts: []string{"pmem-namespace0.0: pmem_namespaces: namespace \"namespace0.0\" is not on this host: it does not count. Compare with `ndctl list --idle`, where it is the name"},
		},
		"other modes, no device, no driver, the host's own": {
			config: []string{"A:a|b|c|d|e|f"},
			found: []Namespace{
				with(usable("namespace0.0", "a"), func(n *Namespace) { n.Mode = ModeMemory }),
				with(usable("namespace0.1", "b"), func(n *Namespace) { n.Mode = ModeSafe }),
				with(usable("namespace0.2", "c"), func(n *Namespace) { n.Mode = ModeRaw }),
				with(usable("namespace0.3", "d"), func(n *Namespace) { n.Device, n.Driver = "", "" }),
				with(usable("namespace0.4", "e"), func(n *Namespace) { n.Driver = "" }),
				with(usable("namespace0.5", "f"), func(n *Namespace) { n.Driver = "kmem" }),
			},
			doubts: []string{
				"pmem-a: pmem_namespaces: namespace \"a\" (namespace0.0) is in mode fsdax, not devdax: it does not count. Make it anew with `ndctl create-namespace --mode=devdax`, which loses its data",
				"pmem-b: pmem_namespaces: namespace \"b\" (namespace0.1) is in mode sector, not devdax: it does not count. Make it anew with `ndctl create-namespace --mode=devdax`, which loses its data",
				"pmem-c: pmem_namespaces: namespace \"c\" (namespace0.2) is in mode raw, not devdax: it does not count. Make it anew with `ndctl create-namespace --mode=devdax`, which loses its data",
				"pmem-d: pmem_namespaces: namespace \"d\" (namespace0.3) has no character device: it does not count. Enable it with `ndctl enable-namespace`",
				"pmem-e: pmem_namespaces: namespace \"e\" (namespace0.4) has /dev/dax0.4, which no driver serves: it does not count. Enable it with `daxctl enable-device`",
				"pmem-f: pmem_namespaces: namespace \"f\" (namespace0.5) has /dev/dax0.5, which is the host's own (driver kmem): it does not count. Give it back with `daxctl reconfigure-device --mode=devdax`",
			},
		},
		"a name for two": {
			config: []string{"A:ns0"},
			found: []Namespace{
				with(usable("namespace0.0", "ns0"), func(n *Namespace) { n.Mode = ModeRaw }), usable("namespace0.1", "ns0"), usable("namespace1.0", "ns0"),
			},
			want:   []string{"CUSTOM_PMEM_NAMESPACE_A /dev/dax0.1"},
			doubts: []string{"pmem-ns0: pmem_namespaces: namespace \"ns0\" is the name of 3 namespaces: namespace0.1 counts, the others do not. Give them names of their own"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := configure(t, tc.config...)
			if err != nil {
				t.Fatal(err)
			}
			pools, doubts := l.Choose(tc.found)
			var got, texts []string
			for _, p := range pools {
				text := p.Class
				for _, n := range p.Namespaces {
					text += " " + n.Device
				}
				got = append(got, text)
			}
			for _, d := range doubts {
				texts = append(texts, d.Key+": "+d.Text)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("pools (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.doubts, texts); diff != "" {
				t.Errorf("doubts (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever there is: each configured name counts once in its class, or has a doubt; a device is given away once; nothing else counts.
func TestEachNameCountsOrIsDoubted(t *testing.T) {
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
		l, err := Parse(NamespacesConfig{PMEMNamespaces: entries})
		if err != nil {
			t.Fatal(err)
		}
		var found []Namespace
		good := map[string]int{}
		for i := range rapid.IntRange(0, 12).Draw(t, "found") {
			n := usable(fmt.Sprintf("namespace0.%d", i), rapid.SampledFrom(append(names, "", "stranger")).Draw(t, "name"))
			if rapid.IntRange(0, 3).Draw(t, "good") == 0 {
				n.Driver = rapid.SampledFrom([]string{"", "kmem"}).Draw(t, "driver")
			} else {
				good[n.Label]++
			}
			found = append(found, n)
		}
		pools, doubts := l.Choose(found)
		doubted := map[string]bool{}
		for _, d := range doubts {
			if doubted[d.Key] {
				t.Fatalf("two doubts are called %s", d.Key)
			}
			doubted[d.Key] = true
		}
		want := map[string]int64{}
		for _, name := range names {
			if good[name] > 0 {
				want[classOf[name]]++
			}
			if good[name] == 0 && !doubted["pmem-"+name] || good[name] > 1 && !doubted["pmem-"+name] {
				t.Fatalf("%s is there %d times, and nobody says so", name, good[name])
			}
		}
		if diff := cmp.Diff(want, Totals(pools)); diff != "" {
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
