// SPDX-License-Identifier: Apache-2.0

package providerconfig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// write makes a directory of files.
func write(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		put(t, dir, name, content)
	}
	return dir
}

func put(t testing.TB, dir, name, content string) {
	t.Helper()
	testproc.Check(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
}

// brief are problems and warnings as LINE:COLUMN PATH: WHAT.
func brief(p *parser) (problems, warnings []string) {
	short := func(at Place, path, what string) string {
		return strings.TrimPrefix(sentence(Place{File: "", Line: at.Line, Column: at.Column}, path, what), ":")
	}
	for _, b := range p.inOrder() {
		problems = append(problems, short(b.Place, b.Path, b.What))
	}
	for _, w := range p.warnings {
		warnings = append(warnings, short(w.Place, w.Path, w.What))
	}
	return problems, warnings
}

const (
	meta = "meta: {schema_version: '1.0'}\n"
	some = "    traits: {additional: [CUSTOM_A]}\n"
	node = "  - identification: {uuid: $COMPUTE_NODE}\n"
)

// TestSchemaRules: each rule of Nova's schema, by its place in it, and what a file that keeps or
// breaks it comes to. Where the rule is ours and not Nova's, its name begins with +.
func TestSchemaRules(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inventory := func(fields string) string {
		return meta + "providers:\n" + node +
			"    inventories:\n      additional:\n        - CUSTOM_A: {" + fields + "}\n"
	}
	identified := func(by string) string { return meta + "providers:\n  - identification: " + by + "\n" + some }
	at := func(what string) []string { return []string{what} }
	none := []string(nil)
	for _, tc := range []struct {
		rule, file         string
		problems, warnings []string
	}{
		{"type object", "- a\n", at("1:1: the file must be a mapping, not a list"), none},
		{"required meta", "providers: []\n", at("1:1: meta is missing, which has the version of the schema"), none},
		{"providers are optional", meta, none, none},
		{"additionalProperties true", meta + "x-note: 1\n", none, at("2:1: x-note: unknown property; it is ignored")},
		{"__source_file not {}", meta + "__source_file: a\n",
			at("2:1: __source_file: this name is reserved by Nova"), none},

		{"meta type object", "meta: 1.0\n", at("1:7: meta: meta must be a mapping, not the number 1.0"), none},
		{"meta required schema_version", "meta: {}\n", at("1:7: meta.schema_version: is missing"), none},
		{"meta additionalProperties true", "meta: {schema_version: '1.0', author: me}\n", none,
			at("1:31: meta.author: unknown property; it is ignored")},
		{"schema_version type string", "meta: {schema_version: 1.0}\n",
			at("1:24: meta.schema_version: must be a text, not the number 1.0"), none},
		{"schema_version pattern", "meta: {schema_version: '1.00'}\n",
			at(`1:24: meta.schema_version: "1.00" is not a version`), none},
		{"schema_version pattern, one number", "meta: {schema_version: '1'}\n",
			at(`1:24: meta.schema_version: "1" is not a version`), none},
		{"schema_version supported major", "meta: {schema_version: '2.0'}\n",
			at("1:24: meta.schema_version: unknown major version 2; this agent reads 1"), none},
		{"schema_version minor warns", "meta: {schema_version: '1.10'}\n", none,
			at(`1:24: meta.schema_version: this agent reads version 1.0; what "1.10" added is ignored`)},

		{"providers type array", meta + "providers: {}\n", at("2:12: providers: must be a list, not a mapping"), none},
		{"providers type array, null", meta + "providers:\n", at("2:11: providers: must be a list, not nothing"), none},
		{"provider type object", meta + "providers: [a]\n",
			at(`2:13: providers[0]: the entry must be a mapping, not the text "a"`), none},
		{"provider required identification", meta + "providers:\n  - traits: {additional: [CUSTOM_A]}\n",
			at("3:5: providers[0]: identification is missing, which selects the provider"), none},
		{"provider additionalProperties true", meta + "providers:\n" + node + some + "    inventory: {}\n", none,
			at("5:5: providers[0].inventory: unknown property; it is ignored")},

		{"identification uuid pattern", identified("{uuid: 6C9F7D5E-8A0B-4C1D-9E2F-3A4B5C6D7E8F}"), none, none},
		{"identification uuid const", identified("{uuid: $COMPUTE_NODE}"), none, none},
		{"identification uuid neither", identified("{uuid: cn1}"),
			at(`3:28: providers[0].identification.uuid: "cn1" is not a uuid`), none},
		{"identification uuid without hyphens", identified("{uuid: 6c9f7d5e8a0b4c1d9e2f3a4b5c6d7e8f}"),
			at(`3:28: providers[0].identification.uuid: "6c9f7d5e8a0b4c1d9e2f3a4b5c6d7e8f" is not a uuid in the ` +
				`form that Nova accepts`), none},
		{"identification uuid type string", identified("{uuid: [a]}"),
			at("3:28: providers[0].identification.uuid: must be a text, not a list"), none},
		{"identification name", identified("{name: cn1}"), none, none},
		{"identification name $COMPUTE_NODE", identified("{name: $COMPUTE_NODE}"), none,
			at("3:28: providers[0].identification.name: no provider has this name; it is read as the uuid " +
				"$COMPUTE_NODE")},
		{"identification name type string", identified("{name: 17}"),
			at("3:28: providers[0].identification.name: must be a text, not the number 17"), none},
		{"identification name type string, YAML 1.1",
			identified("{name: on}"),
			at(`3:28: providers[0].identification.name: must be a text, not "on" (to YAML 1.1 a truth value ` +
				`or a number)`), none},
		{"identification name type string, base 60",
			identified("{name: 190:20:30}"),
			at(`3:28: providers[0].identification.name: must be a text, not "190:20:30" (to YAML 1.1 a truth value ` +
				`or a number)`), none},
		{"identification name type string, date", identified("{name: 2026-01-01}"),
			at("3:28: providers[0].identification.name: must be a text, not the date 2026-01-01"), none},
		{"identification name quoted", identified("{name: 'on'}"), none, none},
		{"identification name minLength", identified("{name: ''}"),
			at(`3:28: providers[0].identification.name: "" cannot be a provider's name`), none},
		{"identification name maxLength 200", identified("{name: " + strings.Repeat("é", 200) + "}"), none, none},
		{"identification name 201", identified("{name: " + strings.Repeat("n", 201) + "}"),
			at(`3:28: providers[0].identification.name: "` +
				strings.Repeat("n", 80) + `…" cannot be a provider's name`), none},
		{"identification minProperties", identified("{}"), at("3:21: providers[0].identification: is empty"), none},
		{"identification maxProperties", identified("{name: a, uuid: $COMPUTE_NODE}"),
			at("3:21: providers[0].identification: uuid and name are both given"), none},
		{"identification additionalProperties false", identified("{host: a}"),
			at(`3:22: providers[0].identification: "host" is not a way to identify a provider`), none},

		{"inventories type object", meta + "providers:\n" + node + "    inventories: []\n",
			at("4:18: providers[0].inventories: it must be a mapping, not a list"), none},
		{"inventories additionalProperties true", meta + "providers:\n" + node + "    inventories: {removed: []}\n" +
			some, none, at("4:19: providers[0].inventories.removed: unknown property; it is ignored")},
		{"additional type array", meta + "providers:\n" + node + "    inventories: {additional: }\n",
			at("4:31: providers[0].inventories.additional: must be a list, not nothing"), none},
		{"+additional items type object", meta + "providers:\n" + node + "    inventories: {additional: [CUSTOM_A]}\n",
			at(`4:32: providers[0].inventories.additional[0]: the inventory must be a mapping, not the ` +
				`text "CUSTOM_A"`), none},
		{"class pattern", meta + "providers:\n" + node + "    inventories: {additional: [{custom-a: {total: 1}}]}\n",
			at(`4:33: providers[0].inventories.additional[0]: "custom-a" cannot be the name of a resource class`),
			none},
		{"class 255 characters", meta + "providers:\n" + node + "    inventories: {additional: [{CUSTOM_" +
			strings.Repeat("A", 248) + ": {total: 1}}]}\n", none, none},
		{"class custom only", meta + "providers:\n" + node + "    inventories: {additional: [{VCPU: {total: 1}}]}\n",
			at(`4:33: providers[0].inventories.additional[0]: "VCPU" is not a custom resource class: only custom ` +
				`ones can be added here, the driver reports the standard ones`), none},
		{"+class CUSTOM_ alone", meta + "providers:\n" +
			node + "    inventories: {additional: [{CUSTOM_: {total: 1}}]}\n",
			at(`4:33: providers[0].inventories.additional[0]: "CUSTOM_" cannot be the name of a resource class`), none},
		{"+class twice in an entry", meta + "providers:\n" + node +
			"    inventories: {additional: [{CUSTOM_A: {total: 1}}, {CUSTOM_A: {total: 2}}]}\n",
			at("4:57: providers[0].inventories.additional[1].CUSTOM_A: the entry already has this class, in line 4"),
			none},

		{"inventory type object", meta + "providers:\n" + node + "    inventories: {additional: [{CUSTOM_A: 1}]}\n",
			at("4:43: providers[0].inventories.additional[0].CUSTOM_A: the inventory must be a mapping, not " +
				"the number 1"), none},
		{"inventory required total", inventory("reserved: 1"),
			at("6:21: providers[0].inventories.additional[0].CUSTOM_A: total is missing"), none},
		{"inventory all fields",
			inventory("total: 9, reserved: 1, min_unit: 2, max_unit: 8, step_size: 2, allocation_ratio: 1.5"), none,
			none},
		{"inventory additionalProperties false", inventory("total: 1, max_units: 1"),
			at(`6:32: providers[0].inventories.additional[0].CUSTOM_A: an inventory has no field "max_units"`), none},
		{"total type integer", inventory("total: many"),
			at(`6:29: providers[0].inventories.additional[0].CUSTOM_A.total: must be a whole number, not the ` +
				`text "many"`), none},
		{"total type integer, quoted", inventory("total: '1'"),
			at(`6:29: providers[0].inventories.additional[0].CUSTOM_A.total: must be a whole number, not the text "1"`),
			none},
		{"total type integer, truth value", inventory("total: true"),
			at("6:29: providers[0].inventories.additional[0].CUSTOM_A.total: must be a whole number, not the " +
				"truth value true"), none},
		{"total type integer, YAML 1.1 truth value",
			inventory("total: yes"),
			at(`6:29: providers[0].inventories.additional[0].CUSTOM_A.total: must be a whole number, not "yes" (to ` +
				`YAML 1.1 a truth value or a number)`), none},
		{"total type integer, fraction", inventory("total: 1.5"),
			at("6:29: providers[0].inventories.additional[0].CUSTOM_A.total: must be a whole number, not " +
				"the number 1.5"), none},
		{"total type integer, 8.0 is one", inventory("total: 8.0"), none, none},
		{"total type integer, 1_000 is one", inventory("total: 1_000"), none, none},
		{"total type integer, 1e3", inventory("total: 1e3"),
			at("6:29: providers[0].inventories.additional[0].CUSTOM_A.total: the number 1e3 is not a whole number " +
				"that all YAML parsers read the same way"), none},
		{"+total leading zero", inventory("total: 010"),
			at("6:29: providers[0].inventories.additional[0].CUSTOM_A.total: the number 010 is not a whole number " +
				"that all YAML parsers read the same way"), none},
		{"+total 0", inventory("total: 0"),
			at(`6:29: providers[0].inventories.additional[0].CUSTOM_A.total: "0" is out of bounds`), none},
		{"+total 2^31", inventory("total: 2147483648"),
			at(`6:29: providers[0].inventories.additional[0].CUSTOM_A.total: "2147483648" is out of bounds`), none},
		{"+total beyond 64 bits", inventory("total: 99999999999999999999"),
			at(`6:29: providers[0].inventories.additional[0].CUSTOM_A.total: "99999999999999999999" is out of bounds`),
			none},
		{"+reserved negative", inventory("total: 1, reserved: -1"),
			at(`6:42: providers[0].inventories.additional[0].CUSTOM_A.reserved: "-1" is out of bounds`), none},
		{"+reserved above total", inventory("total: 1, reserved: 2"),
			at("6:42: providers[0].inventories.additional[0].CUSTOM_A.reserved: reserved is 2, more than the total " +
				"1, which Placement refuses"), none},
		{"+min_unit 0", inventory("total: 1, min_unit: 0"),
			at(`6:42: providers[0].inventories.additional[0].CUSTOM_A.min_unit: "0" is out of bounds`), none},
		{"+min_unit above the total", inventory("total: 4, min_unit: 5"), none,
			at("6:42: providers[0].inventories.additional[0].CUSTOM_A.min_unit: no allocation is possible: 5 is " +
				"more than max_unit or the total")},
		{"+min_unit is the total", inventory("total: 4, min_unit: 4"), none, none},
		{"+min_unit above a total that is wrong", inventory("total: 0, min_unit: 5"),
			at(`6:29: providers[0].inventories.additional[0].CUSTOM_A.total: "0" is out of bounds`), none},
		{"+min_unit above max_unit", inventory("total: 4, min_unit: 2, max_unit: 1"), none,
			at("6:42: providers[0].inventories.additional[0].CUSTOM_A.min_unit: no allocation is possible: 2 is " +
				"more than max_unit or the total")},
		{"allocation_ratio type number, integer", inventory("total: 1, allocation_ratio: 16"), none, none},
		{"allocation_ratio type number", inventory("total: 1, allocation_ratio: '1.0'"),
			at(`6:50: providers[0].inventories.additional[0].CUSTOM_A.allocation_ratio: must be a number, not ` +
				`the text "1.0"`), none},
		{"+allocation_ratio nan", inventory("total: 1, allocation_ratio: .nan"),
			at("6:50: providers[0].inventories.additional[0].CUSTOM_A.allocation_ratio: the number .nan is " +
				"out of bounds"), none},
		{"+allocation_ratio inf", inventory("total: 1, allocation_ratio: .inf"),
			at("6:50: providers[0].inventories.additional[0].CUSTOM_A.allocation_ratio: the number .inf is " +
				"out of bounds"), none},
		{"+allocation_ratio that fits into the column",
			inventory("total: 1, allocation_ratio: 3.4028234663852886e+38"), none, none},
		{"+allocation_ratio that does not", inventory("total: 1, allocation_ratio: 3.402823466385289e+38"),
			at("6:50: providers[0].inventories.additional[0].CUSTOM_A.allocation_ratio: the number " +
				"3.402823466385289e+38 is out of bounds"), none},
		{"+allocation_ratio 0", inventory("total: 1, allocation_ratio: 0"),
			at("6:50: providers[0].inventories.additional[0].CUSTOM_A.allocation_ratio: the number 0 is out of bounds"),
			none},

		{"traits type object", meta + "providers:\n" + node + "    traits: CUSTOM_A\n",
			at(`4:13: providers[0].traits: it must be a mapping, not the text "CUSTOM_A"`), none},
		{"traits additionalProperties true", meta + "providers:\n" + node +
			"    traits: {additional: [CUSTOM_A], aditional: []}\n", none,
			at("4:38: providers[0].traits.aditional: unknown property; it is ignored")},
		{"trait type string", meta + "providers:\n" + node + "    traits: {additional: [1, {}, null]}\n", []string{
			"4:27: providers[0].traits.additional[0]: must be a text, not the number 1",
			"4:30: providers[0].traits.additional[1]: must be a text, not a mapping",
			"4:34: providers[0].traits.additional[2]: must be a text, not nothing",
		}, none},
		{"trait pattern", meta + "providers:\n" + node + "    traits: {additional: [Rack 7]}\n",
			at(`4:27: providers[0].traits.additional[0]: "Rack 7" cannot be the name of a trait`), none},
		{"trait custom only", meta + "providers:\n" + node + "    traits: {additional: [HW_CPU_X86_AVX]}\n",
			at(`4:27: providers[0].traits.additional[0]: "HW_CPU_X86_AVX" is not a custom trait: only custom ones ` +
				`can be added here, the driver reports the standard ones`), none},
		{"trait twice is one", meta + "providers:\n" +
			node + "    traits: {additional: [CUSTOM_A, CUSTOM_A]}\n", none, none},

		{"no-op providers are dropped", meta + "providers:\n" + node + "    traits: {additional: []}\n", none,
			at(`3:21: providers[0]: the entry of "$COMPUTE_NODE" adds nothing and is ignored`)},
	} {
		t.Run(tc.rule, func(t *testing.T) {
			p := parse("", []byte(tc.file))
			problems, warnings := brief(p)
			if diff := cmp.Diff([][]string{tc.problems, tc.warnings}, [][]string{problems, warnings}); diff != "" {
				t.Errorf("problems, warnings (-want +got):\n%s\n%s", diff, tc.file)
			}
			for _, b := range p.problems {
				if b.Hint == "" {
					t.Errorf("no hint: %v", b)
				}
			}
		})
	}
}

// TestHints: what to write instead is as near to what is there as can be known.
func TestHints(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	long := strings.Repeat("a", 80)
	for _, tc := range []struct{ file, hint string }{
		{"providers: [{identification: {uuid: computnode}}]", "write $COMPUTE_NODE"},
		{"providers: [{identification: {uuid: comptnode}}]",
			"write a uuid such as 4e6a7d0a-0f6b-4f0c-9d5e-2f8f2f1c9a55, or $COMPUTE_NODE"},
		{"providers: [{inventories: {additional: [{CUSTOM_A: {total: 2147483647e0}}]}, identification: {name: a}}]",
			"write 2147483647"},
		{"providers: [{inventories: {additional: [{CUSTOM_A: {total: 2147483648e0}}]}, identification: {name: a}}]",
			"write a whole number between 1 and 2147483647"},
		{"providers: [{traits: {additional: [" + long + "]}, identification: {name: a}}]",
			"write CUSTOM_" + strings.ToUpper(long)},
		{"providers: [{traits: {additional: [" + long + "a]}, identification: {name: a}}]",
			"write CUSTOM_ and 1 to 248 of A-Z, 0-9 and _"},
		{"providersxxx: []", "did you mean providers?"},
		{"providersxxxxx: []", "known here: meta, providers"},
		{"mete: {}", "did you mean meta?"},
		{"xy: {}", "known here: meta, providers"},
	} {
		p := parse("", []byte(meta+tc.file+"\n"))
		var got string
		for _, b := range p.problems {
			got = b.Hint
		}
		for _, w := range p.warnings {
			got = w.Hint
		}
		testproc.Equal(t, got, tc.hint, "%s: %q", tc.file)
	}
}

// merged is a file of an inventory that has its total by way of so many mappings.
func merged(n int) string {
	var b strings.Builder
	b.WriteString(meta + "x0: &x0 {total: 3, reserved: 1}\n")
	for i := range n - 1 {
		fmt.Fprintf(&b, "x%d: &x%d {<<: *x%d}\n", i+1, i+1, i)
	}
	fmt.Fprintf(&b, "providers:\n%s    inventories: {additional: [{CUSTOM_A: {<<: *x%d}}]}\n", node, n-1)
	return b.String()
}

// TestBounds: each bound at its value and beyond it.
func TestBounds(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	nested := func(levels int) string { // below the mapping of the file
		return meta + "x: " + strings.Repeat("[", levels-1) + "1" + strings.Repeat("]", levels-1) + "\n"
	}
	for name, tc := range map[string]struct{ within, beyond, says string }{
		"levels of a document":     {nested(maxDepth), nested(maxDepth + 1), "nested too deeply"},
		"mappings that are merged": {merged(maxDepth), merged(maxDepth + 1), "total is missing"},
		"control characters": {meta + "# tab \t and next line \u0085# blank \u00a0\r\n", meta + "# \u009f\n",
			"holds the control character U+009F"},
		"carriage returns":            {meta + "# a\r\n", meta + "# a\rb\n", "holds the control character U+000D"},
		"control characters of ASCII": {meta, meta + "# \x7f\n", "holds the control character U+007F"},
		"control characters at first": {meta, meta + "# \u0080\n", "holds the control character U+0080"},
		"the size of a file": {meta + strings.Repeat("#", maxFileSize-len(meta)),
			meta + strings.Repeat("#", maxFileSize-len(meta)+1), "larger than 1048576 bytes"},
	} {
		if _, _, err := Load(write(t, map[string]string{"a.yaml": tc.within})); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := Load(write(t, map[string]string{"a.yaml": tc.beyond})); err == nil ||
			!strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s, beyond: %v", name, err)
		}
	}
	p := &parser{values: maxValues - 1}
	if !p.count(&yaml.Node{}) || p.stop || p.count(&yaml.Node{}) || !p.stop ||
		p.count(&yaml.Node{}) || len(p.problems) != 1 {
		t.Errorf("values: %d, %v", p.values, p.problems)
	}
	for n, want := range map[int]int{maxKept: maxKept, maxKept + 1: maxKept} {
		p := parse("", []byte(meta+"providers: ["+
			strings.TrimSuffix(strings.Repeat("{identification: {name: a}}, ", n), ", ")+"]\n"))
		if len(p.warnings) != want || len(p.problems) != 0 {
			t.Errorf("%d warnings are kept of %d, %v", len(p.warnings), n, p.problems)
		}
	}
	for s, want := range map[string]string{strings.Repeat("x", 80): `"` + strings.Repeat("x", 80) + `"`,
		strings.Repeat("x", 79) + "é": `"` + strings.Repeat("x", 79) + `…"`} {
		testproc.Equal(t, clip(s), want, "clip: %s")
	}
}

// TestTheLineIsShown: the line is shown, wherever it is.
func TestTheLineIsShown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for file, want := range map[string]string{
		"meta: 1":                  "1| meta: 1",
		meta + "x: [\xff]\ny: 1\n": "2| x: [",
		meta + "a: {}\na: {}":      "3| a: {}",
	} {
		testproc.Contains(t, parse("f", []byte(file)).inOrder().Error(), want, "%q is not shown: %s", want)
	}
}

// TestNovasExamples: the worked cases of Nova's documentation: a default for every compute node,
// one node by uuid and one provider by name, and what each field comes to.
func TestNovasExamples(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c, warnings, err := Load("testdata/nova")
	if err != nil || len(warnings) != 0 {
		t.Fatal(err, warnings)
	}
	want := []Entry{
		{UUID: ComputeNode, Inventories: providertree.Inventories{
			"CUSTOM_LICENSE": {Total: 22, Reserved: 2, MinUnit: 1, MaxUnit: 10, StepSize: 2, AllocationRatio: 1},
			"CUSTOM_ENERGY_TICK": {Total: 1000, MinUnit: 1,
				MaxUnit: providertree.MaxUnit, StepSize: 1, AllocationRatio: 16},
		}, Traits: []string{"CUSTOM_ROOM_B", "CUSTOM_RACK_7"}},
		{UUID: "5213b75d-9260-42a6-b236-f39b0fd10561",
			Inventories: providertree.Inventories{}, Traits: []string{"CUSTOM_SPARE"}},
		{Name: "cn3.example:eth0", Inventories: providertree.Inventories{
			"CUSTOM_PORT_MIRROR": {Total: 2, MinUnit: 1,
				MaxUnit: providertree.MaxUnit, StepSize: 1, AllocationRatio: 1},
		}, Traits: []string{}},
	}
	want[0].Traits = []string{"CUSTOM_RACK_7", "CUSTOM_ROOM_B"} // sorted
	testproc.Samef(t, cmp.Diff(want, c.Entries(), ignorePlaces), "entries")
	for item, where := range map[string]string{
		"CUSTOM_LICENSE": "testdata/nova/10-defaults.yaml:9", "CUSTOM_ENERGY_TICK": "testdata/nova/10-defaults.yaml:15",
		"CUSTOM_RACK_7": "testdata/nova/10-defaults.yaml:21",
		"":              "testdata/nova/10-defaults.yaml:6", "CUSTOM_OTHER": "",
	} {
		testproc.Equal(t, c.Location("11111111-1111-4111-8111-111111111111", "cn1", item), where,
			"Location(%q) = %q", item)
	}
	if got := c.Location("22222222-2222-4222-8222-222222222222", "cn3.example:eth0",
		"CUSTOM_PORT_MIRROR"); got != "testdata/nova/20-special.yaml:12" {
		t.Errorf("Where by name: %q", got)
	}
	if got := c.Location("5213b75d-9260-42a6-b236-f39b0fd10561",
		"cn2", "CUSTOM_SPARE"); got != "testdata/nova/20-special.yaml:8" {
		t.Errorf("Where by uuid: %q", got)
	}
}

// TestDocuments: whatever is wrong with YAML itself.
func TestDocuments(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	bomb := meta + "a: &a [x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c <= 'i'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c,
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", c-1), 8), ", "))
	}
	items := "t: &t [" + strings.Repeat("CUSTOM_A, ", 999) + "CUSTOM_A]\n"
	for name, tc := range map[string]struct {
		file string
		want []string // parts of the message; nothing: it is valid
	}{
		"empty":                    {"", []string{"f.yaml: the file is empty", "hint: begin it with meta"}},
		"comments":                 {"# nothing\n", []string{"the file is empty"}},
		"marker":                   {"---\n", []string{"the file must be a mapping, not nothing"}},
		"marker before, end":       {"---\n" + meta + "...\n", nil},
		"byte order mark":          {"\ufeff" + meta, nil},
		"byte order mark, place":   {"\ufeffmeta: 1\n", []string{"f.yaml:1:7"}},
		"windows":                  {strings.ReplaceAll(meta+"providers:\n"+node+some, "\n", "\r\n"), nil},
		"UTF-16":                   {"\xff\xfem\x00", []string{"this is UTF-16", "save the file as UTF-8"}},
		"Latin-1":                  {meta + "# caf\xe9\n", []string{"f.yaml:2:6: byte 0xe9 is not UTF-8"}},
		"NUL":                      {meta + "a: \x00\n", []string{"f.yaml:2:4: holds the control character U+0000"}},
		"two documents, one empty": {meta + "---\n", []string{"f.yaml:3:", "a second document begins here"}},
		"two documents":            {meta + "---\n" + meta, []string{"f.yaml:3:1: a second document begins here"}},
		"not YAML":                 {meta + "a: [1\n", []string{"f.yaml:", "invalid YAML", "hint:"}},
		"tab": {"meta:\n\tschema_version: '1.0'\n",
			[]string{"f.yaml:2: invalid YAML", "never with tabs"}},
		"unknown anchor":     {meta + "a: *b\n", []string{"invalid YAML", "b"}},
		"key twice":          {meta + meta, []string{`f.yaml:2:1: "meta" is given twice: first in line 1`}},
		"key twice, ignored": {meta + "x:\n  y: {z: 1, z: 2}\n", []string{`f.yaml:3:13: "z" is given twice`}},
		"foreign tag": {meta + "x: !!python/object:os.system {}\n",
			[]string{`"!!python/object:os.system" is a tag that has no meaning here`}},
		"deep": {meta + "x: " + strings.Repeat("[", 40) + strings.Repeat("]", 40),
			[]string{"nested too deeply"}},
		"very deep":        {meta + "x: " + strings.Repeat("[", 100_000), []string{"f.yaml:", "exceeded max depth"}},
		"key is a number":  {meta + "1: a\n", []string{"f.yaml:2:1: the number 1 is not a property name"}},
		"key is a mapping": {meta + "? {a: b}\n: c\n", []string{"f.yaml:2:3: a mapping is not a property name"}},
		"alias in itself":  {meta + "x: &x [*x]\n", []string{"f.yaml:2:8: *x refers to itself"}},
		"aliases, ignored": {bomb, nil}, // nothing there is read
		"aliases, unfolded": {meta + items + "providers:\n" +
			strings.Repeat(node+"    traits: {additional: *t}\n", 500), []string{"more than 200000 values"}},
		"alias": {meta + "t: &t [CUSTOM_A]\nproviders:\n" + node + "    traits: {additional: *t}\n", nil},
		"merge": {meta + "x: &x {reserved: 1, total: 9}\nproviders:\n" + node +
			"    inventories: {additional: [{CUSTOM_A: {<<: *x, total: 3}}]}\n", nil},
		"merge of several": {meta + "x: &x {total: 3}\ny: &y {total: 4, reserved: 1}\nproviders:\n" + node +
			"    inventories: {additional: [{CUSTOM_A: {<<: [*x, *y]}}]}\n", nil},
		"merge of a text": {meta + "providers:\n" + node +
			"    inventories: {additional: [{CUSTOM_A: {<<: abc, total: 3}}]}\n",
			[]string{`the text "abc" cannot be merged into a mapping`}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, map[string]string{"f.yaml": tc.file})
			c, _, err := Load(dir)
			if len(tc.want) == 0 {
				testproc.Check(t, err)
				if strings.HasPrefix(name, "merge") {
					want := providertree.Inventory{Total: 3, Reserved: 1}.Normalize()
					testproc.Equal(t, c.Entries()[0].Inventories["CUSTOM_A"], want, "merged: %+v")
				}
				return
			}
			if !errors.Is(err, ErrInvalid) || c != nil {
				t.Fatalf("Load: %v, %v", c, err)
			}
			for _, part := range tc.want {
				if !strings.Contains(strings.ReplaceAll(err.Error(), dir+"/", ""), part) {
					t.Errorf("%q is missing in:\n%v", part, err)
				}
			}
		})
	}
}
