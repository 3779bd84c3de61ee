// SPDX-License-Identifier: Apache-2.0

package pmem

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// configure reads a configuration the way the driver does.
func configure(t testing.TB, entries ...string) (Labels, error) {
	text, err := json.Marshal(map[string][]string{NamespacesKey: entries})
	if err != nil {
		t.Fatal(err)
	}
	var c NamespacesConfig
	if err := plugins.DecodeConfig(text, &c); err != nil {
		t.Fatal(err)
	}
	return Parse(c)
}

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		entries []string
		want    map[string][]string
	}{
		"nothing":                {nil, map[string][]string{}},
		"Nova's documentation":   {[]string{"128G:ns0|ns1|ns2|ns3", "262144MB:ns4|ns5", "MEDIUM:ns6|ns7"}, map[string][]string{"128G": {"ns0", "ns1", "ns2", "ns3"}, "262144MB": {"ns4", "ns5"}, "MEDIUM": {"ns6", "ns7"}}},
		"one label twice":        {[]string{"A:ns1", "A:ns0"}, map[string][]string{"A": {"ns1", "ns0"}}},
		"labels of one class":    {[]string{"fast-16g:ns1", "FAST.16G:ns0"}, map[string][]string{"FAST_16G": {"ns1", "ns0"}}},
		"space around the entry": {[]string{" A:ns 1 "}, map[string][]string{"A": {"ns 1"}}},
		"a name with a colon":    {[]string{"A:ns:1"}, map[string][]string{"A": {"ns:1"}}},
		"a label with space":     {[]string{"my label :ns1"}, map[string][]string{"MY_LABEL_": {"ns1"}}},
		"the longest name":       {[]string{"A:" + strings.Repeat("ü", 31) + "x"}, map[string][]string{"A": {strings.Repeat("ü", 31) + "x"}}},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := configure(t, tc.entries...)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string][]string{}
			for label, names := range tc.want {
				want["CUSTOM_PMEM_NAMESPACE_"+label] = names
			}
			if diff := cmp.Diff(want, l.names); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if !slices.IsSorted(l.classes) || len(l.classes) != len(want) || l.Configured() != (len(want) > 0) {
				t.Errorf("classes %v", l.classes)
			}
		})
	}
}

func TestWrongNamespaces(t *testing.T) {
	long := strings.Repeat("n", 64)
	for _, tc := range []struct {
		want    string
		entries []string
	}{
		{`[0]: "" is no label with names of namespaces, such as "SMALL:ns0|ns1"`, []string{""}},
		{`[1]: "ns0|ns1" is no label with names of namespaces, such as "SMALL:ns0|ns1"`, []string{"A:ns2", "ns0|ns1"}},
		{`[0]: "" is no label such as SMALL or 128G: ASCII, and with a letter or a digit`, []string{":ns0"}},
		{`[0]: "--" is no label such as SMALL or 128G: ASCII, and with a letter or a digit`, []string{"--:ns0"}},
		{`[0]: "groß" is no label such as SMALL or 128G: ASCII, and with a letter or a digit`, []string{"groß:ns0"}},
		{`[0]: has an empty name of a namespace`, []string{"A:"}},
		{`[0]: has an empty name of a namespace`, []string{"A:ns0||ns1"}},
		{`[0]: " ns0" is no name of a namespace: there is space around it`, []string{"A: ns0"}},
		{`[0]: "ns\n0" is no name of a namespace: there is a control character in it`, []string{"A:ns\n0"}},
		{`[0]: "` + long[:60] + `"... is no name of a namespace: it has 64 bytes, can have 63`, []string{"A:" + long}},
		{`[0]: "ns0,B:ns1" has a comma: write each label with its namespaces as a text of its own in the list`, []string{"A:ns0,B:ns1"}},
		{`[0]: namespace "ns0" is in the list already`, []string{"A:ns0|ns0"}},
		{`[1]: namespace "ns0" is in the list already`, []string{"A:ns0", "B:ns1|ns0"}},
	} {
		_, err := configure(t, tc.entries...)
		var wrong *plugins.ConfigError
		if want := "configuration: pmem_namespaces" + tc.want; !errors.As(err, &wrong) || err.Error() != want {
			t.Errorf("%q: %v, want\n%s", tc.entries, err, want)
		}
	}
	if _, err := configure(t, strings.Repeat("L", 300)+":ns0"); err == nil {
		t.Error("a label too long for a resource class is one")
	}
	var many []string
	for i := range maxNames + 1 {
		many = append(many, fmt.Sprintf("ns%d", i))
	}
	if _, err := configure(t, "A:"+strings.Join(many, "|")); err == nil {
		t.Error("there is no end of namespaces")
	}
	if _, err := configure(t, "A:"+strings.Join(many[1:], "|")); err != nil {
		t.Error(err)
	}
}

// What is taken is a class that Placement takes, and names that the kernel takes; and it says the same when it is written again.
func FuzzParseEntry(f *testing.F) {
	for _, s := range []string{"SMALL:ns0|ns1", "128G:ns0", "A:ns:1", "", ":", "A:|", " A:b ", "A:b,c", "ß:x", "A:ns0|ns0", "A: b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		class, names, err := parseEntry(s)
		if err != nil {
			return
		}
		if err := providertree.ValidateClass(class); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		for _, name := range names {
			if name == "" || len(name) > maxName || strings.TrimSpace(name) != name {
				t.Fatalf("%q has the name %q", s, name)
			}
		}
		again := strings.TrimPrefix(class, "CUSTOM_"+classPrefix) + ":" + strings.Join(names, "|")
		class2, names2, err := parseEntry(again)
		if err != nil || class2 != class || !slices.Equal(names2, names) {
			t.Fatalf("%q is %s %q, and that is %s %q, %v", s, class, names, class2, names2, err)
		}
	})
}
