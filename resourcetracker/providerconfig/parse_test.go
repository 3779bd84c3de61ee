// SPDX-License-Identifier: Apache-2.0

package providerconfig

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// encode writes entries as a provider.yaml with every field.
func encode(t interface{ Fatal(...any) }, entries []Entry) []byte {
	providers := []any{}
	for _, e := range entries {
		id := map[string]string{"uuid": e.UUID}
		if e.Name != "" {
			id = map[string]string{"name": e.Name}
		}
		classes := []any{}
		for class, i := range e.Inventories {
			classes = append(classes, map[string]any{class: map[string]any{
				"total": i.Total, "reserved": i.Reserved, "min_unit": i.MinUnit, "max_unit": i.MaxUnit,
				"step_size": i.StepSize, "allocation_ratio": i.AllocationRatio,
			}})
		}
		providers = append(providers, map[string]any{
			"identification": id, "inventories": map[string]any{"additional": classes},
			"traits": map[string]any{"additional": e.Traits},
		})
	}
	out, err := yaml.Marshal(map[string]any{"meta": map[string]string{"schema_version": "1.0"}, "providers": providers})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRoundTrip: what is written is read: names that look like something else included.
func TestRoundTrip(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	symbol := rapid.StringMatching(`CUSTOM_[A-Z0-9_]{1,12}`)
	amount := rapid.Int64Range(1, providertree.MaxUnit)
	inventory := rapid.Custom(func(t *rapid.T) providertree.Inventory {
		total := amount.Draw(t, "total")
		return providertree.Inventory{
			Total: total, Reserved: rapid.Int64Range(0, total).Draw(t, "reserved"), MinUnit: amount.Draw(t, "min"),
			MaxUnit:  amount.Draw(t, "max"),
			StepSize: amount.Draw(t, "step"), AllocationRatio: rapid.Float64Range(1e-6, 1e6).Draw(t, "ratio"),
		}
	})
	name := rapid.OneOf(
		rapid.SampledFrom([]string{"yes", "on", "12", "1:30", "null", "~", "2026-01-01", "a: b", "- a", "#", "'",
			"é\"", "!x", "*y", "&z", "0x1"}),
		rapid.StringMatching(`[ -~]{1,40}`))
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfNDistinct(name, 1, 5, rapid.ID[string]).Draw(t, "names")
		var want []Entry
		for _, n := range names {
			e := Entry{Name: n, Inventories: rapid.MapOfN(symbol, inventory, 1, 4).Draw(t, "inventories"),
				Traits: rapid.SliceOfNDistinct(symbol, 0, 4, rapid.ID[string]).Draw(t, "traits")}
			slices.Sort(e.Traits)
			want = append(want, e)
		}
		file := encode(t, want)
		p := parse("f.yaml", file)
		if len(p.problems) > 0 {
			t.Fatalf("parsing what was encoded: problems %v\n%s", p.problems, file)
		}
		if diff := cmp.Diff(want, p.entries, ignorePlaces); diff != "" {
			t.Fatalf("entries (-want +got):\n%s\n%s", diff, file)
		}
	})
}

// TestDocumentedExample: the file that the documentation shows is one that works.
func TestDocumentedExample(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c, warnings, err := Load("../../docs/examples/provider_config")
	if err != nil || len(warnings) > 0 || c.Len() == 0 {
		t.Fatal(c.Len(), warnings, err)
	}
	example := testproc.Try(os.ReadFile(c.Files()[0])).Or(t)
	page := testproc.Try(os.ReadFile("../../docs/operators.md")).Or(t)
	if !strings.Contains(string(page), "```yaml\n"+string(example)+"```") {
		t.Errorf("docs/operators.md does not show %s as it is", c.Files()[0])
	}
	layer, unmatched := c.Layer(host(t), rootID)
	if len(layer.Providers) != 2 || len(unmatched) != 0 {
		t.Errorf("the example's providers: %+v, %v", layer, unmatched)
	}
}

// FuzzParse: whatever a file holds, parse ends, does not panic, says where each problem is and what
// to do, and accepts nothing that Placement would refuse; what it accepts it reads again from its
// own form.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/broken/*.yaml", "testdata/nova/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatal(files, err)
		}
		for _, name := range files {
			data := testproc.Try(os.ReadFile(name)).Or(f)
			f.Add(data)
		}
	}
	f.Add([]byte(meta + "x: &x {<<: *x}\n"))
	f.Add([]byte(meta + "providers: &p\n" + node + "    <<: {traits: {additional: [CUSTOM_A, *p]}}\n"))
	f.Add([]byte("\xef\xbb\xbf--- !!map\n? [a]\n: !!str 1\n...\n---\n"))
	f.Add([]byte(meta + "providers: [{identification: {name: \"\\0\"}, traits: {additional: [!!str CUSTOM_A, !!int " +
		"CUSTOM_B]}}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := parse("f.yaml", data)
		for _, b := range p.inOrder() {
			if b.What == "" || b.Hint == "" || b.Line > len(p.lines)+1 || b.Error() == "" {
				t.Errorf("a problem without a word: %+v", b)
			}
		}
		if len(p.problems) > 0 {
			return
		}
		for _, e := range p.entries {
			testproc.NoError(t, e.Inventories.Validate())
			for _, trait := range e.Traits {
				if err := providertree.ValidateTrait(trait); err != nil || !providertree.IsCustom(trait) {
					t.Errorf("the trait %q is accepted: %v", trait, err)
				}
			}
			if (e.UUID == "") == (e.Name == "") {
				t.Errorf("identification of %+v", e)
			}
		}
		if len(p.entries) == 0 {
			return
		}
		again := parse("g.yaml", encode(t, p.entries))
		if len(again.problems) > 0 {
			t.Fatalf("not read again: %v", again.problems)
		}
		var want []Entry
		for _, e := range p.entries {
			if len(e.Inventories)+len(e.Traits) > 0 {
				want = append(want, e)
			}
		}
		testproc.Samef(t, cmp.Diff(want, again.entries, ignorePlaces), "read again")
	})
}
